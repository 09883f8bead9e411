// Time and memory of scheduling: linear in nodes.
#include "base/os.h"
#include "schedule/memory_plan.h"
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

double ms_since(int64_t start) { return static_cast<double>(os::now_ns() - start) * 1e-6; }

TEST(ScheduleScale, a_million_nodes) {
  double last = 0;
  for (const int64_t n : {100000, 1000000}) {
    const UOp in = buffer(DType::Float32, 1024, "NULL");
    std::vector<UOp> xs{in};
    std::vector<UOp> roots;
    UOp x = in;
    // A wide graph: elementwise steps, every now and then a reduce.
    for (int64_t i = 0; i < n / 5; ++i) {
      x = x * cst(0.5 + 1e-7 * static_cast<double>(i), x) + in;
      if (i % 100 == 99) x = x + ex(sum(x, {0}), {1024});
    }
    const int64_t start = os::now_ns();
    const auto s = engine::schedule(std::vector<UOp>{x});
    last = ms_since(start);
    printf("%ld nodes: %.0f ms, %ld kernels, %ld kernel nodes\n", s.schedule->stats.n_tensor_nodes, last, s.schedule->stats.n_kernels,
           s.schedule->stats.n_kernel_nodes);
    EXPECT_LT(s.schedule->stats.n_kernel_nodes, 12 * n);
  }
}

TEST(ScheduleScale, equal_graphs_are_scheduled_once) {
  clear_schedule_cache();
  const auto graph = [] {
    const UOp a = input({16, 16}), b = input({16, 16});
    return sum(a * b + a, {1});
  };
  EXPECT_FALSE(engine::schedule(std::vector<UOp>{graph()}).cache_hit);
  EXPECT_TRUE(engine::schedule(std::vector<UOp>{graph()}).cache_hit);
  const UOp a = input({16, 16});
  EXPECT_FALSE(engine::schedule(std::vector<UOp>{sum(a * a + a, {1})}).cache_hit);  // which buffers coincide matters
  const FlagScope off("SCACHE", int64_t{0});
  EXPECT_FALSE(engine::schedule(std::vector<UOp>{graph()}).cache_hit);
}

TEST(ScheduleScale, temporaries_share_memory) {
  UOp x = rs(input({1024}), {1024});
  for (int i = 0; i < 20; ++i) x = contiguous(fl(x, {0}) + cst(1, x));
  const auto s = engine::schedule(std::vector<UOp>{x}).schedule->stats;
  EXPECT_EQ(s.n_kernels, 20);
  EXPECT_EQ(s.temp_bytes, 19 * 4096);
  EXPECT_EQ(s.arena_bytes, 2 * 4096);
  EXPECT_EQ(s.live_bytes, 2 * 4096);
  check(x);
  const FlagScope off("NO_MEMORY_PLANNER", int64_t{1});
  const auto alone = engine::schedule(std::vector<UOp>{contiguous(contiguous(x + cst(1, x)) + cst(3, x))});
  EXPECT_TRUE(alone.schedule->arenas.empty());
}

TEST(ScheduleScale, the_order_keeps_the_peak_low) {
  // Four large values, each summed at once: running all producers first would hold all four.
  UOp total;
  for (uint32_t i = 0; i < 4; ++i) {
    const UOp x = contiguous(fl(input({64, 512}, "REF", DType::Float32, i), {0}));
    const UOp y = contiguous(sum(x, {0}));
    total = total ? total + y : y;
  }
  const auto s = engine::schedule(std::vector<UOp>{total}).schedule->stats;
  EXPECT_LE(s.live_bytes, 64 * 512 * 4 + 4 * 2048);
  EXPECT_LE(s.arena_bytes, s.live_bytes * 11 / 10);
  check(total);
}

TEST(ScheduleScale, small_updates_do_not_wait_for_other_small_kernels) {
  // Each large value is used up by a kernel that reads a state; its update could share a launch with the end of a long chain.
  const auto reversed = [](const UOp& x) { return contiguous(fl(x, {0})); };
  const UOp state = input({1});
  const UOp next = after(state, state, state * cst(0.9, state));
  std::vector<UOp> roots{next};
  UOp x = input({512, 128});
  for (uint32_t i = 0; i < 4; ++i) {
    x = reversed(x);
    roots.push_back(contiguous(sum(x * cst(2, x), {0}) + ex(rs(next, {1, 1}), {1, 128})));
  }
  const UOp rows = contiguous(sum(reversed(x), {0}));
  roots.push_back(contiguous(contiguous(sum(rows, {1})) * cst(2, x)));
  const auto s = engine::schedule(roots).schedule;
  EXPECT_LE(s->stats.live_bytes, 2 * 512 * 128 * 4 + 1024);
}

TEST(ScheduleScale, results_are_written_over_operands_where_most_is_alive) {
  constexpr int64_t kBytes = 64 * 512 * 4;
  const auto last = [](bool elsewhere) {
    const UOp x = contiguous(fl(input({64, 512}), {0}));
    const UOp y = contiguous((elsewhere ? fl(x, {1}) : x) * cst(2, x) + x);
    return contiguous(fl(y, {1}));
  };
  const auto stats = [&](bool elsewhere) { return engine::schedule(std::vector<UOp>{last(elsewhere)}).schedule->stats; };
  EXPECT_EQ(stats(false).arena_bytes, 2 * kBytes);  // what is small stays as it is
  set_launch_cost(0);
  const auto s = engine::schedule(std::vector<UOp>{last(false)}).schedule;
  EXPECT_EQ(s->stats.arena_bytes, kBytes);
  EXPECT_EQ(s->stats.live_bytes, kBytes);
  ASSERT_EQ(s->calls.size(), 3U);
  EXPECT_EQ(s->calls[1].args.size(), 1U);
  EXPECT_TRUE(s->calls[1].updates);
  EXPECT_EQ(stats(true).arena_bytes, 2 * kBytes);  // reads other places than it writes
  check(last(false));
  check(last(true));
  set_launch_cost(2500);
}

TEST(ScheduleScale, kernels_of_repeated_blocks_are_equal) {
  UOp x = input({8, 32});
  const UOp w = input({32, 32});
  for (int i = 0; i < 6; ++i) {
    const UOp y = sum(ex(rs(x, {8, 1, 32}), {8, 32, 32}) * ex(rs(w, {1, 32, 32}), {8, 32, 32}), {2});
    x = contiguous(alu(Op::Max, {rs(y, {8, 32}), cst(0, x)}));
  }
  const auto s = engine::schedule(std::vector<UOp>{x});
  ASSERT_EQ(s.schedule->calls.size(), 6u);
  for (const auto& c : s.schedule->calls) EXPECT_EQ(c.kernel, s.schedule->calls[0].kernel);
}

TEST(ScheduleScale, linear_of_calls) {
  const UOp l = engine::schedule(std::vector<UOp>{sum(input({4, 4}), {1})}).schedule->to_linear();
  EXPECT_EQ(l.op(), Op::Linear);
  EXPECT_EQ(l.src(0).src(0).op(), Op::Sink);
  EXPECT_EQ(l.src(0).n_src(), 3u);
}

}  // namespace
}  // namespace whit::test
