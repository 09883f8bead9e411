// COPY of views of a file: which bytes are read, and their values.
#include <numeric>

#include "base/error.h"
#include "unit/engine_test_util.h"
#include "unit/temp_folder.h"

namespace whit::test {
namespace {

UOp to_ref(const UOp& x) { return UOp::make(Op::Copy, x.dtype(), {x}, "REF"); }
UOp bits(const UOp& x, DType dtype) { return UOp::make(Op::Bitcast, dtype, {x}); }

// What the copies of a schedule move: bytes from DISK.
int64_t bytes_read(const UOp& root) {
  const BoundSchedule bound = engine::schedule(std::span(&root, 1));
  int64_t n = 0;
  for (const ScheduledCall& c : bound.schedule->calls) {
    if (c.kernel) continue;
    const ScheduleBuffer& from = bound.schedule->buffers[static_cast<size_t>(c.args[1])];
    if (device_name(from.device).starts_with("DISK")) n += from.n_elems * n_bytes(from.dtype);
  }
  return n;
}

class EngineRanges : public ::testing::Test {
 protected:
  EngineRanges() {
    std::string bytes(240, '\0');
    std::iota(bytes.begin(), bytes.end(), char{0});
    path = folder.write("data", bytes);
    file = buffer(DType::UInt8, 240, "DISK:" + path);
    std::vector<uint8_t> same(240);
    std::iota(same.begin(), same.end(), uint8_t{0});
    memory = engine::buffer_from_host(DType::UInt8, same, "REF");
  }
  // The view of the file, copied, is that of the same bytes in memory; `n_read` bytes are read for it.
  void check_view(const std::function<UOp(const UOp&)>& view, int64_t n_read) {
    const UOp moved = to_ref(view(file));
    EXPECT_EQ(bytes_read(moved), n_read);
    EXPECT_EQ(values(engine::realize(moved)), expected(std::vector<UOp>{view(memory)})[0]);
  }
  TempFolder folder;
  std::string path;
  UOp file, memory;
};

TEST_F(EngineRanges, one_range_is_copied_by_itself) {
  check_view([](const UOp& x) { return x; }, 240);
  check_view([](const UOp& x) { return sh(x, {10, 20}); }, 10);
  check_view([](const UOp& x) { return sh(sh(x, {10, 20}), {3, 7}); }, 4);
  check_view([](const UOp& x) { return sh(rs(x, {10, 24}), {3, 5, 0, 24}); }, 48);
  check_view([](const UOp& x) { return sh(rs(x, {10, 24}), {3, 4, 5, 9}); }, 4);
  check_view([](const UOp& x) { return rs(sh(rs(sh(x, {24, 72}), {2, 24}), {1, 2, 4, 8}), {2, 2}); }, 4);
  check_view([](const UOp& x) { return pm(sh(rs(x, {10, 24}), {3, 4, 0, 24}), {1, 0}); }, 24);
  check_view([](const UOp& x) { return bits(sh(x, {4, 12}), DType::Int32); }, 8);
  check_view([](const UOp& x) { return sh(bits(sh(x, {4, 36}), DType::Int16), {2, 5}); }, 6);
  const UOp one = to_ref(sh(file, {10, 20}));
  const auto stats = engine::schedule(std::span(&one, 1)).schedule->stats;
  EXPECT_EQ(stats.n_kernels, 0);
  EXPECT_EQ(stats.n_copies, 1);
}

TEST_F(EngineRanges, other_views_are_made_of_a_range) {
  check_view([](const UOp& x) { return sh(rs(x, {10, 24}), {3, 5, 2, 6}); }, 48);
  check_view([](const UOp& x) { return sh(rs(x, {2, 5, 24}), {1, 2, 1, 4, 2, 6}); }, 72);
  check_view([](const UOp& x) { return fl(sh(x, {10, 20}), {0}); }, 10);
  check_view([](const UOp& x) { return pm(sh(rs(x, {10, 24}), {3, 5, 0, 24}), {1, 0}); }, 48);
  check_view([](const UOp& x) { return sh(pm(rs(x, {10, 24}), {1, 0}), {3, 5, 0, 10}); }, 240);
  check_view([](const UOp& x) { return pd(sh(x, {10, 20}), {2, 3}); }, 10);
  check_view([](const UOp& x) { return ex(rs(sh(x, {10, 20}), {1, 10}), {4, 10}); }, 10);
  check_view([](const UOp& x) { return window(sh(x, {10, 20}), 0, 3, 2, 1); }, 10);
  check_view([](const UOp& x) { return UOp::make(Op::Stack, x.dtype(), {sh(x, {1, 4}), sh(x, {90, 93})}); }, 6);
  check_view([](const UOp& x) { return bits(contiguous(fl(sh(x, {8, 24}), {0})), DType::Int32); }, 16);
}

TEST_F(EngineRanges, nothing_is_read_for_nothing) {
  const UOp none = to_ref(sh(file, {5, 5}));
  EXPECT_EQ(bytes_read(none), 0);
  EXPECT_EQ(engine::realize(none).shape().numel(), 0);
}

TEST_F(EngineRanges, copies_below_other_work_and_of_memory) {
  const UOp part = to_ref(sh(file, {10, 20}));
  EXPECT_EQ(bytes_read(cast(part, DType::Float32) + cast(to_ref(sh(file, {30, 40})), DType::Float32)), 20);
  const UOp sum_of = cast(part, DType::Int32) + cast(sh(memory, {0, 10}), DType::Int32);
  EXPECT_EQ(values(engine::realize(sum_of)), (std::vector<double>{10, 12, 14, 16, 18, 20, 22, 24, 26, 28}));
}

TEST_F(EngineRanges, what_is_computed_from_a_file_is_computed_elsewhere) {
  const UOp sum = sh(file, {0, 4}) + constant(DType::UInt8, 1);
  EXPECT_EQ(values(engine::realize(to_ref(sum))), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(bytes_read(sum), 4);
  EXPECT_EQ(engine::realize(sum)->device, engine::default_device_id());
  EXPECT_EQ(values(engine::realize(sum + cast(sh(file, {8, 12}), DType::UInt8))), (std::vector<double>{9, 11, 13, 15}));
}

TEST_F(EngineRanges, what_a_file_cannot_do_is_still_an_error) {
  const UOp longer = buffer(DType::UInt8, 241, "DISK:" + path);
  try {
    engine::realize(to_ref(sh(longer, {0, 4})));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "[disk] " + path + ": 241 bytes are asked for, the file has 240");
  }
  engine::realize(to_ref(sh(file, {0, 1})));
  folder.write("data", "0123");
  EXPECT_EQ(values(engine::realize(to_ref(sh(file, {1, 3})))), (std::vector<double>{'1', '2'}));
  try {
    engine::realize(to_ref(sh(file, {2, 9})));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "[disk] " + path + ": it ends at 4, 5 bytes early");
  }
}

}  // namespace
}  // namespace whit::test
