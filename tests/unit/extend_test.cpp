// What programs add to the pipeline: passes and renderers. Devices: tests/device.
#include <gtest/gtest.h>

#include "base/error.h"
#include "error_of.h"
#include "ir/build.h"
#include "render/renderer.h"
#include "rewrite/passes.h"
#include "runtime/device.h"
#include "whit/whit.h"

namespace whit {
namespace {

// Every ADD of a constant adds one more.
UOp add_more(const UOp& sink) {
  std::unordered_map<const Node*, UOp> map;
  for (const Node* n : toposort(sink))
    if (n->op == Op::Add && n->dtype == DType::Float32) map.emplace(n, UOp(n) + constant(DType::Float32, 1.0));
  return substitute(sink, map);
}

std::vector<float> sum_of(const Tensor& x) { return (x + 0.5).to_vector<float>(); }

TEST(Passes, RunAtTheirStageWhileTheyLive) {
  const Tensor x = Tensor::from<float>({1, 2}).realize();
  for (const PassStage stage : {PassStage::Tensor, PassStage::Kernel, PassStage::Loops}) {
    if (stage == PassStage::Loops && default_device() == "REF") continue;
    EXPECT_EQ(sum_of(x), (std::vector<float>{1.5, 2.5}));
    {
      const PassScope one(stage, "more", add_more);
      EXPECT_NE(passes_key(), 0u);
      EXPECT_EQ(sum_of(x), (std::vector<float>{2.5, 3.5}));
      const PassScope two(stage, "more still", add_more);  // sees two sums, the second of which is replaced
      EXPECT_EQ(sum_of(x), (std::vector<float>{3.5, 4.5}));
    }
    EXPECT_EQ(passes_key(), 0u);
    EXPECT_EQ(sum_of(x), (std::vector<float>{1.5, 2.5}));
  }
}

TEST(Passes, AreHeldToWhatTheyWereGiven) {
  const Tensor x = Tensor::from<float>({1, 2}).realize();
  const auto error = [&](const PassFn& fn) {
    const PassScope scope(PassStage::Tensor, "odd", fn);
    return error_of([&] { sum_of(x); });
  };
  EXPECT_EQ(error([](const UOp& sink) { return sink.src(0); }), "[pass odd] expected a SINK of 1 sources like the one that it was given");
  EXPECT_EQ(error([](const UOp&) { return UOp::make(Op::Sink, DType::Void, {constant(DType::Float32, 1.0)}); }),
            "[pass odd] value 0 became float32 of shape (), it was float32 of shape (2,)");
  EXPECT_NE(
      error([](const UOp& sink) {
        const UOp i = range(2, 0, AxisType::Loop), p = param(0, DType::Float32, sink.src(0).shape());
        return sink.with_src(std::vector{UOp::make(Op::After, DType::Float32, {p, end(store(index(p, i), load(index(p, i))), std::vector{i})})});
      }).find("odd"),
      std::string::npos);
}

TEST(Renderers, AreAddedOnce) {
  const auto render = [](const UOp&, std::string_view kernel, const Target&) { return std::string(kernel); };
  register_renderer({"names", cpu_caps(), render, false});
  EXPECT_EQ(renderer_by_name("names").render(UOp(), "k", {}), "k");
  EXPECT_EQ(renderer_names().back(), "names");
  EXPECT_EQ(error_of([&] { register_renderer({"names", cpu_caps(), render}); }), "[renderer] there is a renderer names already");
  EXPECT_EQ(error_of([] { renderer_by_name("nemes"); }), "no renderer 'nemes'; there are llvm, c, names");
}

}  // namespace
}  // namespace whit
