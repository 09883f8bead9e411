// The timeline of the flag PROFILE.
#include "base/profile.h"

#include <map>

#include "runtime/counters.h"
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

std::map<std::string, int> by_category() {
  std::map<std::string, int> n;
  for (const TimelineEvent& e : timeline()) ++n[e.category];
  return n;
}

TEST(Profile, kernels_add_up_to_the_measured_time) {
  const FlagScope on("PROFILE", int64_t{1});
  clear_timeline();
  counters().reset();
  const UOp a = input({64, 3}), b = input({64, 3}, "REF", DType::Float32, 2);
  engine::realize(contiguous(a * b) + cst(1, a));
  int64_t total = 0;
  for (const TimelineEvent& e : timeline()) {
    EXPECT_GE(e.end_ns, e.start_ns) << e.category;
    if (e.category == std::string("kernel") || e.category == std::string("copy")) total += e.end_ns - e.start_ns;
  }
  EXPECT_EQ(total, counters().time_sum_ns.load());
  auto n = by_category();
  EXPECT_EQ(n["kernel"], counters().kernel_count.load());
  EXPECT_EQ(n["realize"], 1);
  EXPECT_EQ(n["schedule"], 1);
}

TEST(Profile, an_exception_ends_what_was_open) {
  const FlagScope on("PROFILE", int64_t{1});
  clear_timeline();
  try {
    const ProfileSpan span("python", "fails");
    raise(ErrorKind::Value, "here");
  } catch (const Error&) {
  }
  ASSERT_EQ(timeline().size(), 1u);
  EXPECT_GE(timeline()[0].end_ns, timeline()[0].start_ns);
}

TEST(Profile, nothing_is_collected_without_the_flag) {
  clear_timeline();
  engine::realize(input({5}) + input({5}));
  EXPECT_TRUE(timeline().empty());
}

}  // namespace
}  // namespace whit::test
