// Capture and replay.
#include "base/os.h"
#include "engine/jit.h"
#include "runtime/counters.h"
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

using engine::Capture;
using V = std::vector<double>;
UOp buf(std::vector<float> v, const char* device = "REF") { return engine::buffer_from_host(DType::Float32, v, device); }
template <class F> std::string jit_error(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Jit);
    return e.what();
  }
  return "no error";
}

TEST(EngineJit, replays_with_other_inputs) {
  const UOp x = buf({1, 2, 3}), w = buf({10, 20, 30});
  const auto f = [&](const UOp& in) { return engine::realize(sum(in * w, {0})); };
  Capture c(std::vector<UOp>{x});
  const UOp y = f(x);
  const auto g = c.finish(std::vector<UOp>{y});
  EXPECT_EQ(g->n_kernels(), 1);
  EXPECT_EQ(values(y), (V{140}));
  const UOp x2 = buf({1, 0, 0});
  const UOp y2 = g->replay(std::vector<UOp>{x2})[0];
  EXPECT_EQ(values(y2), (V{10}));
  EXPECT_EQ(values(y), (V{140}));  // still held, so not overwritten
  const UOp y3 = g->replay(std::vector<UOp>{x})[0];
  EXPECT_EQ(values(y3), (V{140}));
  EXPECT_EQ(values(y2), (V{10}));
}

TEST(EngineJit, results_take_turns) {
  const UOp x = buf({1, 2, 3});
  std::unique_ptr<engine::CapturedGraph> g;
  {
    Capture c(std::vector<UOp>{x});
    const UOp y = engine::realize(x * cst(2, x));
    g = c.finish(std::vector<UOp>{y});
  }
  const int64_t before = counters().mem_used.load();
  UOp y;
  for (int i = 0; i < 100; ++i) y = g->replay(std::vector<UOp>{x})[0];
  EXPECT_LE(counters().mem_used.load() - before, 2 * 12);
  std::vector<UOp> all;
  for (int i = 0; i < 10; ++i) all.push_back(g->replay(std::vector<UOp>{buf({float(i), 0, 0})})[0]);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(values(all[static_cast<size_t>(i)])[0], 2 * i);
}

TEST(EngineJit, state_is_updated_in_place) {
  UOp state = buf({0, 0});
  const UOp x = buf({1, 2});
  const auto step = [&](const UOp& in) {
    UOp next = after(state, state, state + in);
    state = {};
    state = engine::realize(next);
  };
  Capture c(std::vector<UOp>{x});
  step(x);
  const auto g = c.finish(std::vector<UOp>{state});
  EXPECT_EQ(values(state), (V{1, 2}));
  g->replay(std::vector<UOp>{x});
  g->replay(std::vector<UOp>{buf({10, 10})});
  EXPECT_EQ(values(state), (V{12, 14}));
}

TEST(EngineJit, old_readers_inside_of_the_function) {
  UOp state = buf({1, 2});
  const UOp x = buf({5, 5});
  const auto f = [&](const UOp& in) {
    const UOp y = state * cst(2, state);  // lazy
    UOp next = after(state, state, in);
    state = {};
    state = engine::realize(next);
    return engine::realize(y);
  };
  Capture c(std::vector<UOp>{x});
  const UOp y = f(x);
  const auto g = c.finish(std::vector<UOp>{y});
  EXPECT_EQ(values(y), (V{2, 4}));
  EXPECT_EQ(values(state), (V{5, 5}));
  EXPECT_EQ(values(g->replay(std::vector<UOp>{buf({7, 8})})[0]), (V{10, 10}));
  EXPECT_EQ(values(g->replay(std::vector<UOp>{buf({0, 0})})[0]), (V{14, 16}));
  EXPECT_EQ(values(state), (V{0, 0}));
}

TEST(EngineJit, wrong_inputs_are_refused) {
  const UOp x = input({2, 3});
  Capture c(std::vector<UOp>{x, x});
  const UOp y = engine::realize(x * cst(2, x));
  const auto g = c.finish(std::vector<UOp>{y});
  const auto replay = [&](std::vector<UOp> in) { return jit_error([&] { g->replay(in); }); };
  EXPECT_EQ(replay({x, input({2, 3})}), "[jit] inputs 0 and 1 were the same memory when captured, and are not now");
  EXPECT_EQ(replay({x, x + cst(1, x)}), "[jit] input 1 is not realised");
  EXPECT_EQ(replay({x, x}), "no error");
}

TEST(EngineJit, aliases_of_written_memory_are_refused) {
  UOp state = buf({0, 0});
  UOp a = buf({1, 2}), b = buf({3, 4});
  Capture c(std::vector<UOp>{a, b});
  UOp next = after(state, state, state + a);
  state = {};
  state = engine::realize(next);
  next = {};
  UOp a2 = after(a, a, a + b);
  a = {};
  a = engine::realize(a2);
  a2 = {};
  const auto g = c.finish(std::vector<UOp>{a});
  EXPECT_EQ(jit_error([&] { g->replay(std::vector<UOp>{b, state}); }), "[jit] input 1 is memory that the captured function writes");
  EXPECT_EQ(jit_error([&] { g->replay(std::vector<UOp>{b, b}); }), "[jit] inputs 0 and 1 share memory, and the captured function writes it");
  EXPECT_EQ(values(g->replay(std::vector<UOp>{a, b})[0]), (V{7, 10}));
}

TEST(EngineJit, a_result_fed_back) {
  UOp x = buf({1, 2});
  Capture c(std::vector<UOp>{x});
  UOp y = engine::realize(x * cst(2, x) + fl(x, {0}));
  const auto g = c.finish(std::vector<UOp>{y});
  V want = values(y);
  for (int i = 0; i < 5; ++i) {
    y = g->replay(std::vector<UOp>{y})[0];
    want = {want[0] * 2 + want[1], want[1] * 2 + want[0]};
    EXPECT_EQ(values(y), want);
  }
}

TEST(EngineJit, nothing_run_and_state_made_inside) {
  const UOp x = buf({1, 2});
  EXPECT_NE(jit_error([&] {
              Capture c(std::vector<UOp>{x});
              c.finish(std::vector<UOp>{});
            }).find("nothing was run"),
            std::string::npos);
  EXPECT_FALSE(engine::is_capturing());
  EXPECT_NE(jit_error([&] {
              Capture c(std::vector<UOp>{x});
              const UOp z = broadcast_scalar(constant(DType::Float32, 0), dims({2}));
              const UOp state = engine::realize(after(z, z, z + x));
              c.finish(std::vector<UOp>{});
            }).find("would start over"),
            std::string::npos);
}

TEST(EngineJit, what_only_weights_decide_is_computed_when_they_change) {
  UOp w = buf({1, 2, 3, 4});
  const UOp x = buf({1, 1, 1, 1});
  const auto once = [](const UOp& u) { return UOp::make(Op::Contiguous, u.dtype(), {u}); };
  // Two chains of temporaries over the weights, one after the other in the same memory of the arena.
  const auto f = [&](const UOp& in) {
    const UOp a = once(once(w * cst(2, w)) + cst(1, w));
    const UOp y = once(in * a);
    return engine::realize(y * once(once(w * cst(3, w)) + cst(1, w)));
  };
  const auto expected = [](double v) { return (2 * v + 1) * (3 * v + 1); };
  Capture c(std::vector<UOp>{x});
  const UOp y = f(x);
  const auto g = c.finish(std::vector<UOp>{y});
  const int64_t n_each = g->n_kernels();
  EXPECT_LE(n_each, 2);
  const auto replayed = [&] { return values(g->replay(std::vector<UOp>{x})[0]); };
  const auto n_run = [&] {
    const int64_t before = counters().kernel_count.load();
    replayed();
    return counters().kernel_count.load() - before;
  };
  EXPECT_EQ(replayed(), (V{expected(1), expected(2), expected(3), expected(4)}));
  EXPECT_EQ(n_run(), n_each);
  // A store by a kernel, a copy from the host, a view of the memory.
  {
    UOp next = after(w, w, w + cst(1, w));
    w = {};
    w = engine::realize(next);
  }
  EXPECT_EQ(replayed(), (V{expected(2), expected(3), expected(4), expected(5)}));
  const std::vector<float> fresh{5, 6, 7, 8};
  engine::buffer_of(engine::buffer_below(w))->copyin(fresh.data(), 16);
  EXPECT_EQ(replayed(), (V{expected(5), expected(6), expected(7), expected(8)}));
  Buffer::view(engine::buffer_of(engine::buffer_below(w)), 4, 4)->copyin(fresh.data(), 4);
  EXPECT_EQ(replayed(), (V{expected(5), expected(5), expected(7), expected(8)}));
  EXPECT_EQ(n_run(), n_each);
  // A replay of another graph.
  {
    Capture of_store(std::vector<UOp>{});
    UOp next = after(w, w, w + cst(1, w));
    w = {};
    w = engine::realize(next);
    next = {};
    const auto store = of_store.finish(std::vector<UOp>{});
    EXPECT_EQ(replayed(), (V{expected(6), expected(6), expected(8), expected(9)}));
    store->replay({});
    EXPECT_EQ(replayed(), (V{expected(7), expected(7), expected(9), expected(10)}));
  }
  // Once the host has a pointer, nobody knows: each replay computes all.
  auto* const p = static_cast<float*>(engine::buffer_of(engine::buffer_below(w))->host_pointer());
  replayed();
  p[0] = 0;
  EXPECT_EQ(replayed(), (V{expected(0), expected(7), expected(9), expected(10)}));
  EXPECT_GT(n_run(), n_each);
}

TEST(EngineJit, the_arena_has_no_place_for_what_lasts) {
  constexpr int64_t n = 1 << 15, bytes = n * 4;  // too large to share a launch
  const UOp w = rs(input({n}, "REF"), {n}), x = buf(std::vector<float>(n, 1));
  const auto once = [](const UOp& u) { return UOp::make(Op::Contiguous, u.dtype(), {u}); };
  const auto turned = [&](const UOp& u) { return once(fl(u, {0})); };
  // Two things that last lie between two that do not, and all are alive at once.
  const auto f = [&](const UOp& in) {
    const UOp a = turned(in), b = turned(w * cst(2, w)), c = turned(w * cst(3, w)), d = turned(a * b);
    return engine::realize(turned(d * c + a));
  };
  Capture c(std::vector<UOp>{x});
  const UOp y = f(x);
  const auto g = c.finish(std::vector<UOp>{y});
  EXPECT_EQ(g->lasting_bytes(), 2 * bytes);
  EXPECT_EQ(g->arena_bytes(), 2 * bytes);
  const V once_more = values(g->replay(std::vector<UOp>{x})[0]), again = values(g->replay(std::vector<UOp>{x})[0]);
  EXPECT_EQ(once_more, values(f(x)));
  EXPECT_EQ(again, once_more);
}

TEST(EngineJit, what_lasts_has_a_limit) {
  const UOp x = buf(std::vector<float>(100, 1));
  const UOp w = buf(std::vector<float>(100, 2)), v = buf(std::vector<float>(100, 3));
  for (const auto& [most, n_kernels] : {std::pair<int64_t, int64_t>{0, 2}, {799, 2}, {800, 1}}) {
    Capture c(std::vector<UOp>{x});
    const UOp y = engine::realize(contiguous(fl(w, {0})) * contiguous(fl(v, {0}) + w) * x);
    const auto g = c.finish(std::vector<UOp>{y}, most);
    EXPECT_EQ(g->n_kernels(), n_kernels) << most;
    EXPECT_EQ(values(g->replay(std::vector<UOp>{x})[0])[7], 10);
  }
}

TEST(EngineJit, a_replay_inside_of_a_capture) {
  const UOp x = buf({1, 2});
  std::unique_ptr<engine::CapturedGraph> inner, outer;
  {
    Capture c(std::vector<UOp>{x});
    const UOp y = engine::realize(contiguous(fl(x, {0})) * cst(2, x));
    inner = c.finish(std::vector<UOp>{y});
  }
  {
    Capture c(std::vector<UOp>{x});
    const UOp y = inner->replay(std::vector<UOp>{x})[0];
    const UOp z = engine::realize(y + cst(1, x));
    outer = c.finish(std::vector<UOp>{z});
  }
  inner = nullptr;
  EXPECT_EQ(values(outer->replay(std::vector<UOp>{buf({3, 4})})[0]), (V{9, 7}));
}

TEST(EngineJit, memory_is_given_back) {
  const int64_t before = counters().mem_used.load();
  {
    const UOp x = buf(std::vector<float>(100, 1));
    Capture c(std::vector<UOp>{x});
    const UOp y = engine::realize(contiguous(fl(x, {0})) + x);
    const auto g = c.finish(std::vector<UOp>{y});
    EXPECT_GT(g->arena_bytes(), 0);
    for (int i = 0; i < 1000; ++i) g->replay(std::vector<UOp>{x});
  }
  EXPECT_EQ(counters().mem_used.load(), before);
}

TEST(EngineJit, overhead_of_three_tiny_kernels) {
  const UOp x = buf({1, 2, 3, 4}, "CPU");
  Capture c(std::vector<UOp>{x});
  UOp y = contiguous(x + cst(1, x));
  y = contiguous(fl(y, {0}) * cst(2, x));
  y = engine::realize(fl(y, {0}) + x);
  const auto g = c.finish(std::vector<UOp>{y});
  y = {};
  EXPECT_EQ(g->n_kernels(), 3);
  const std::vector<UOp> in{x};
  for (int i = 0; i < 1000; ++i) y = g->replay(in)[0];
  const int64_t start = os::now_ns();
  constexpr int kCalls = 100000;
  for (int i = 0; i < kCalls; ++i) y = g->replay(in)[0];
  printf("a replay of 3 tiny kernels: %.3f us\n", static_cast<double>(os::now_ns() - start) * 1e-3 / kCalls);
  EXPECT_EQ(values(y), (V{5, 8, 11, 14}));
}

}  // namespace
}  // namespace whit::test
