// Rules on real graphs: kernels of networks and of movement chains keep their values to the last bit when they are
// simplified, tensor graphs too; and what fired on the way is proved by Z3.
#include <gtest/gtest.h>

#include "base/flags.h"
#include "engine/realize.h"
#include "interpret_tensor.h"
#include "ir/text.h"
#include "rules/instance.h"
#include "rules/prove.h"
#include "rules/rules.h"
#include "whit/tensor.h"

namespace whit::test {
namespace {

struct Sample {
  const char* name;
  Tensor value;
};

Tensor numbers(const IntList& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  std::vector<float> v;
  for (int64_t e = 0; e < n; ++e) v.push_back(static_cast<float>(e * 7 % 23 - 11) / 4);
  return Tensor::from(v, shape);
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  const Tensor image = numbers({2, 3, 12, 12}), weight = numbers({4, 3, 3, 3});
  const Tensor hidden = image.conv2d(weight, {.padding = 1}).relu();
  out.push_back({"conv", hidden});
  out.push_back({"strided conv", image.conv2d(weight, {.stride = 2, .padding = 1})});
  out.push_back({"pool", hidden.max_pool2d({.kernel_size = 2})});
  const Tensor x = numbers({2, 1, 10, 10}), w = numbers({2, 1, 3, 3});
  const Tensor loss = x.conv2d(w).relu().max_pool2d({.kernel_size = 2}).reshape({2, -1}).log_softmax().sum();
  const auto grads = loss.gradient({x, w});
  out.push_back({"gradient of the image", grads[0]});
  out.push_back({"gradient of the weight", grads[1]});
  const Tensor t = numbers({6, 10, 4});
  out.push_back({"reshapes", t.reshape({4, 60}).permute({1, 0}).reshape({15, 16}).flip({0}).reshape({8, 30})});
  out.push_back({"pads", t.pad({2, 0, 0, 3, 1, 2}).reshape({13, 54})});
  out.push_back({"cat", Tensor::cat({t, t.flip({1}), t * 2}, 1)});
  out.push_back({"softmax", t.softmax(1)});
  out.push_back({"cumsum", t.cumsum(1)});
  out.push_back({"triangle", numbers({9, 9}).triu(1) + numbers({9, 9}).tril()});
  out.push_back({"roll", t.roll({3, 1}, IntList{1, 2})});
  return out;
}

TEST(RealKernels, AreTheSameWhenSimplified) {
  int64_t n_before = 0, n_after = 0, n_proved = 0;
  RewriteStats& stats = rewrite_stats();
  stats = {};
  for (const Sample& s : samples()) {
    const std::vector<UOp> roots{s.value.contiguous().uop()};
    std::shared_ptr<const Schedule> schedule;
    {
      // As they are before the scheduler simplifies them.
      const FlagScope flags({{"RULES", std::string("-algebra,-index,-gate,-cast,-loops")}, {"SCACHE", int64_t{0}}});
      schedule = engine::schedule(roots).schedule;
    }
    for (const ScheduledCall& call : schedule->calls) {
      if (!call.kernel) continue;
      UOp simple;
      std::vector<RewriteEvent> events;
      {
        RewriteTrace trace;
        simple = simplify(call.kernel);
        events = std::move(trace.events);
      }
      n_before += cost(call.kernel);
      n_after += cost(simple);
      EXPECT_EQ(simplify(simple), simple) << s.name;
      std::vector<std::vector<std::byte>> memory[2];
      for (auto& m : memory) {
        std::vector<void*> buffers;
        for (const int32_t a : call.args) {
          const ScheduleBuffer& b = schedule->buffers[static_cast<size_t>(a)];
          auto& bytes = m.emplace_back(static_cast<size_t>(b.n_elems * n_bytes(b.dtype)));
          for (int64_t e = 0; e < b.n_elems; ++e)
            write_element(b.dtype, bytes.data(), e, Scalar::of(b.dtype, static_cast<int64_t>(e * 13 % 31 - 15)));
          buffers.push_back(bytes.data());
        }
        evaluate_kernel(&m == memory ? call.kernel : simple, buffers);
      }
      EXPECT_EQ(memory[0], memory[1]) << s.name << "\n" << to_text(call.kernel) << "---\n" << to_text(simple);
      int n_of_kernel = 0;
      z3::context z;
      for (const RewriteEvent& e : events) {
        if (n_of_kernel == 40 || !provable(e.before) || !provable(e.after)) continue;
        Proof proof = prove_firing(z, e.before, e.after, 1000);
        if (proof == Proof::Unknown) proof = prove_by_trying(e.before, e.after);
        if (proof == Proof::NotApplicable) continue;
        EXPECT_EQ(proof, Proof::Yes) << e.rule << "\n" << to_text(e.before) << "---\n" << to_text(e.after);
        ++n_of_kernel, ++n_proved;
      }
    }
  }
  printf("kernels: cost %ld before, %ld after; %ld of %ld firings proved; %ld nodes visited, %ld rules tried\n", static_cast<long>(n_before),
         static_cast<long>(n_after), static_cast<long>(n_proved), static_cast<long>(stats.fired), static_cast<long>(stats.visited),
         static_cast<long>(stats.tried));
}

TEST(RealKernels, TensorGraphsAreTheSameWhenSimplified) {
  const RuleSet set = rules::symbolic();
  int64_t n_before = 0, n_after = 0;
  for (const Sample& s : samples()) {
    const UOp before = s.value.uop(), after = graph_rewrite(before, set);
    n_before += cost(before);
    n_after += cost(after);
    HostInputs inputs;
    std::vector<std::vector<std::byte>> memory;
    for (const Node* n : toposort(before)) {
      if (n->op != Op::Buffer) continue;
      auto& bytes = memory.emplace_back(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)));
      for (int64_t e = 0; e < n->shape.numel(); ++e)
        write_element(n->dtype, bytes.data(), e, Scalar::of(n->dtype, static_cast<int64_t>(e * 13 % 31 - 15)));
      inputs.memory[n] = bytes.data();
    }
    EXPECT_EQ(evaluate_tensor(before, inputs).bytes, evaluate_tensor(after, inputs).bytes) << s.name;
    EXPECT_EQ(graph_rewrite(after, set), after) << s.name;
  }
  printf("tensor graphs: cost %ld before, %ld after\n", static_cast<long>(n_before), static_cast<long>(n_after));
}

}  // namespace
}  // namespace whit::test
