// Program order: what is read is what was there when the program read it.
#include "runtime/counters.h"
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

UOp zeros(D d) { return broadcast_scalar(constant(DType::Float32, 0), dims(d)); }
UOp buf(std::vector<float> v) { return engine::buffer_from_host(DType::Float32, v, "REF"); }
using V = std::vector<double>;

TEST(EngineStores, in_place_keeps_the_address) {
  UOp b = buf({1, 2, 3});
  const void* address = engine::buffer_of(b)->handle();
  UOp s = after(b, b, b * cst(2, b));
  b = {};
  s = engine::realize(s);
  EXPECT_EQ(values(s), (V{2, 4, 6}));
  EXPECT_EQ(engine::buffer_of(engine::buffer_below(s))->handle(), address);
}

TEST(EngineStores, a_lazy_reader_of_the_old_state) {
  UOp b = buf({1, 2, 3});
  const void* address = engine::buffer_of(b)->handle();
  const UOp y = b * cst(2, b);
  UOp s = after(b, b, zeros({3}));
  b = {};
  s = engine::realize(s);
  EXPECT_EQ(values(s), (V{0, 0, 0}));
  EXPECT_EQ(values(engine::realize(y)), (V{2, 4, 6}));
  EXPECT_EQ(engine::buffer_of(engine::buffer_below(s))->handle(), address);
}

TEST(EngineStores, a_reader_inside_of_the_graph) {
  UOp b = buf({1, 2, 3});
  const UOp y = b * cst(2, b);
  UOp s = after(b, b, y + cst(1, b));
  b = {};
  s = engine::realize(s);
  EXPECT_EQ(values(s), (V{3, 5, 7}));
  EXPECT_EQ(values(engine::realize(y)), (V{2, 4, 6}));
}

TEST(EngineStores, old_and_new_in_one_kernel) {
  UOp b = buf({1, 2, 3});
  UOp s = after(b, b, zeros({3}));
  const UOp both = b * cst(10, b) + s;
  b = {};
  EXPECT_EQ(values(engine::realize(both)), (V{10, 20, 30}));
  EXPECT_EQ(values(engine::realize(s)), (V{0, 0, 0}));
}

TEST(EngineStores, a_value_that_reads_other_places) {
  UOp b = buf({1, 2, 3, 4});
  EXPECT_EQ(values(engine::realize(after(b, b, fl(b, {0})))), (V{4, 3, 2, 1}));
  b = buf({1, 2, 3, 4});
  EXPECT_EQ(values(engine::realize(after(b, sh(b, {1, 4}), sh(b, {0, 3})))), (V{1, 1, 2, 3}));
  b = buf({1, 2, 3, 4});
  EXPECT_EQ(values(engine::realize(after(b, rs(b, {2, 2}), pm(rs(b, {2, 2}), {1, 0})))), (V{1, 3, 2, 4}));
}

TEST(EngineStores, views_and_repeated_stores) {
  UOp b = buf({1, 2, 3, 4});
  UOp s = after(b, sh(b, {0, 2}), zeros({2}));
  s = after(s, sh(s, {3, 4}), sh(s, {2, 3}) * cst(5, s));
  s = after(s, s, s + cst(1, s));
  b = {};
  EXPECT_EQ(values(engine::realize(s)), (V{1, 1, 4, 16}));
}

TEST(EngineStores, readers_of_a_middle_state) {
  UOp b = buf({1, 2});
  UOp s1 = after(b, b, b + cst(1, b));
  const UOp y = s1 * cst(10, b);
  UOp s2 = after(s1, s1, s1 * s1);
  b = {};
  s1 = {};
  s2 = engine::realize(s2);
  EXPECT_EQ(values(s2), (V{4, 9}));
  EXPECT_EQ(values(engine::realize(y)), (V{20, 30}));
}

TEST(EngineStores, a_held_middle_state) {
  UOp b = buf({1, 2});
  const UOp s1 = after(b, b, b + cst(1, b));
  UOp s2 = after(s1, s1, s1 * s1);
  b = {};
  EXPECT_EQ(values(engine::realize(s2)), (V{4, 9}));
  EXPECT_EQ(values(engine::realize(s1)), (V{2, 3}));
}

TEST(EngineStores, a_second_store_after_a_run) {
  UOp b = buf({1, 2});
  UOp s = after(b, b, b + cst(1, b));
  b = {};
  const UOp v1 = engine::realize(s);  // held: an old reader of the next store
  s = v1;
  s = after(s, s, s * s);
  s = engine::realize(s);
  EXPECT_EQ(values(s), (V{4, 9}));
  EXPECT_EQ(values(v1), (V{2, 3}));
}

TEST(EngineStores, a_computed_target) {
  const UOp a = buf({1, 2, 3});
  UOp x = a * cst(2, a);
  UOp s = after(x, sh(x, {0, 1}), zeros({1}));
  EXPECT_EQ(values(engine::realize(s)), (V{0, 4, 6}));
  EXPECT_EQ(values(engine::realize(x)), (V{2, 4, 6}));
  EXPECT_EQ(values(a), (V{1, 2, 3}));
}

TEST(EngineStores, a_swap) {
  UOp a = buf({1, 2}), b = buf({3, 4});
  UOp sa = after(a, a, b), sb = after(b, b, a);
  a = {};
  b = {};
  const auto got = engine::realize(std::vector<UOp>{sa, sb});
  EXPECT_EQ(values(got[0]), (V{3, 4}));
  EXPECT_EQ(values(got[1]), (V{1, 2}));
}

TEST(EngineStores, a_root_that_reads_the_old_state) {
  UOp b = buf({1, 2});
  const UOp y = sum(b, {0});
  UOp s = after(b, b, zeros({2}));
  b = {};
  const auto got = engine::realize(std::vector<UOp>{s, y});
  EXPECT_EQ(values(got[0]), (V{0, 0}));
  EXPECT_EQ(values(got[1]), (V{3}));
}

TEST(EngineStores, a_held_view) {
  UOp b = buf({1, 2, 3, 4});
  const UOp row = sh(rs(b, {2, 2}), {0, 1, 0, 2});
  UOp s = after(b, b, zeros({4}));
  b = {};
  s = engine::realize(s);
  EXPECT_EQ(values(engine::realize(row)), (V{1, 2}));
  EXPECT_EQ(values(s), (V{0, 0, 0, 0}));
}

TEST(EngineStores, a_held_expansion_keeps_what_it_expands) {
  UOp b = buf({1, 2, 3});
  const UOp small = b * cst(2, b);
  const UOp large = ex(rs(small, {1, 3}), {1000, 3});
  UOp s = after(b, b, rs(sum(large, {0}), {3}));
  b = {};
  const UOp y = large + cst(1, large);
  s = engine::realize(s);
  EXPECT_EQ(values(s), (V{2000, 4000, 6000}));
  EXPECT_TRUE(realized(small));
  EXPECT_FALSE(realized(large));
  EXPECT_EQ(values(engine::realize(sh(y, {0, 1, 0, 3}))), (V{3, 5, 7}));
}

TEST(EngineStores, memory_returns_to_the_start) {
  UOp w = buf(std::vector<float>(64, 1.0F));
  const int64_t start = counters().mem_used.load();
  for (int i = 0; i < 1000; ++i) {
    const UOp x = buf(std::vector<float>(64, 0.5F));
    UOp grad = sum(ex(rs(w, {1, 64}), {2, 64}) * ex(rs(x, {1, 64}), {2, 64}), {0});
    UOp loss = sum(rs(grad, {64}), {0});
    UOp next = after(w, w, w - rs(grad, {64}) * cst(0.001, w));
    w = {};
    const auto got = engine::realize(std::vector<UOp>{loss, next});
    w = got[1];
  }
  EXPECT_EQ(counters().mem_used.load(), start);
}

}  // namespace
}  // namespace whit::test
