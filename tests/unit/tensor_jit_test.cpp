// What happens between two calls of a captured function without arguments, which otherwise only launches its kernels again.
#include "base/flags.h"
#include "engine/buffers.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "tensor_checks.h"
#include "whit/jit.h"
#include "whit/transform.h"

namespace whit {
namespace {

// Where queues are, calls are more than launches: those of earlier tests end.
struct TensorJit : testing::Test {
  TensorJit() { finalize_devices(); }
};

// state += weight, captured and launched.
struct Step {
  Tensor state = f32({0, 0}, 2), weight = f32({1, 2}, 2);
  int n_bodies = 0;
  TinyJit jit{[this](std::span<const Tensor>) {
    ++n_bodies;
    state.assign(state + weight).realize();
    return std::vector<Tensor>{};
  }};
  Step() { calls(5); }
  void calls(int n) {
    for (int i = 0; i < n; ++i) jit();
  }
};

TEST_F(TensorJit, ReadersOfTheStateComeBetweenLaunches) {
  Step s;
  Tensor written = Tensor::full({2}, 7.0), lazy = f32({7, 7}, 2) + 1, other = f32({7, 7}, 2);
  const auto expect_old = [&](const Tensor& reader, float calls) {
    s.calls(2);
    expect_tensor(reader, 2, {calls * 1, calls * 2});
    expect_tensor(s.state, 2, {calls + 2, 2 * (calls + 2)});
    s.calls(3);
  };
  expect_old(s.state * 1, 5);
  expect_old(s.state.flip({0}).flip({0}) + 0, 10);
  expect_old(written.assign(s.state), 15);
  expect_old(lazy.assign(s.state), 20);
  expect_old(other.replace(s.state + 0), 25);
}

TEST_F(TensorJit, StoresComeBetweenLaunches) {
  Step s;
  s.state.assign(Tensor::full({2}, 100.0));
  s.calls(2);
  expect_tensor(s.state, 2, {102, 104});
  s.weight.assign(s.weight * 10);
  s.calls(2);
  expect_tensor(s.state, 2, {122, 144});
  s.state.set({0}, 5.0);
  s.calls(1);
  expect_tensor(s.state, 2, {15, 164});
  const float fresh[] = {1, 1};
  engine::buffer_of(engine::buffer_below(s.state.uop()))->copyin(fresh, sizeof fresh);
  s.calls(1);
  expect_tensor(s.state, 2, {11, 21});
}

TEST_F(TensorJit, AStoreOfOldContentGivesTheStateOtherMemory) {
  Step s;
  const Tensor old = s.state + 0;
  s.state.assign(s.state * 2);
  Tensor::realize_all(std::vector{s.state, old});
  expect_tensor(old, 2, {5, 10});
  s.calls(2);
  expect_tensor(s.state, 2, {12, 24});
}

TEST_F(TensorJit, FlagsAreSetBetweenLaunches) {
  Step s;
  {
    const FlagScope off("JIT", 0);
    s.calls(2);
  }
  EXPECT_EQ(s.n_bodies, 4);
  {
    const FlagScope check("JIT_CHECK", 1);
    s.calls(2);
  }
  EXPECT_EQ(s.n_bodies, 6);
  s.calls(2);
  EXPECT_EQ(s.n_bodies, 6);
  expect_tensor(s.state, 2, {11, 22});
}

// Each writes what the other one has computed a temporary from, which lasts.
TEST_F(TensorJit, LaunchesThatChangeWhatOthersKeep) {
  Tensor weight = f32({1, 2, 3, 4}, 4), sum = Tensor::zeros({4}).contiguous().realize();
  TinyJit grow([&](std::span<const Tensor>) {
    weight.assign(weight + 1).realize();
    return std::vector<Tensor>{};
  });
  TinyJit add([&](std::span<const Tensor>) {
    const Tensor kept = (weight * 2).contiguous();
    sum.assign(sum + kept).realize();
    return std::vector<Tensor>{};
  });
  float first = 1, total = 0;
  const auto grows = [&](int n) {
    for (int i = 0; i < n; ++i) grow(), first += 1;
  };
  const auto adds = [&](int n) {
    for (int i = 0; i < n; ++i) add(), total += 2 * first;
  };
  grows(5), adds(5);
  EXPECT_GT(add.lasting_bytes(), 0);
  const int64_t n_run = counters().kernel_count.load();
  adds(3);
  EXPECT_EQ(counters().kernel_count.load() - n_run, 3 * add.n_kernels());
  for (int i = 0; i < 4; ++i) grows(i + 1), adds(1 + i % 2);
  // Once the host has a pointer, no change is seen.
  auto* const p = static_cast<float*>(engine::buffer_of(engine::buffer_below(weight.uop()))->host_pointer());
  for (int i = 0; i < 3; ++i) {
    p[0] += 10, first += 10;
    adds(2);
  }
  EXPECT_EQ(sum.to_vector<float>()[0], total);
}

TEST_F(TensorJit, ACaptureAndATraceSeeTheKernelsOfALaunch) {
  Step s;
  const Tensor x = f32({1, 1}, 2);
  TinyJit outer([&](std::span<const Tensor>) {
    s.calls(2);
    return std::vector<Tensor>{};
  });
  for (int i = 0; i < 4; ++i) outer();
  expect_tensor(s.state, 2, {13, 26});
  s.calls(2);
  const int before = s.n_bodies;
  jvp(
      [&](std::span<const Tensor> in) {
        s.jit();
        return std::vector{in[0] * 2};
      },
      std::vector{x}, std::vector{x});
  EXPECT_EQ(s.n_bodies, before + 1);
}

TEST_F(TensorJit, AQueueStartsBetweenLaunches) {
  Step s;
  const int64_t before = s.jit.cnt();
  {
    const FlagScope async("ASYNC", 2);
    s.calls(3);
    expect_tensor(s.state, 2, {8, 16});
  }
  s.calls(3);
  expect_tensor(s.state, 2, {11, 22});
  EXPECT_EQ(s.jit.cnt(), before + 6);
}

}  // namespace
}  // namespace whit
