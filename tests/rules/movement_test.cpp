// The movement table proves itself like the others, on tensors: random chains of movement ops over small tensors.
#include <gtest/gtest.h>

#include <cstdlib>

#include "interpret_tensor.h"
#include "ir/text.h"
#include "rules/instance.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

using pat::PatKind;
using pat::PatNode;

class Chains {
 public:
  explicit Chains(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

  UOp make(const Pat& lhs) {
    n_params_ = 0;
    UOp out;
    return build(lhs.node, &out) ? out : UOp();
  }

 private:
  UOp tensor(std::span<const int64_t> dims) { return param(n_params_++, DType::Float32, dims); }
  Dims random_dims() {
    Dims d;
    for (int64_t left = 1 + below(3); left > 0; --left) d.push_back(chance(25) ? 1 : 1 + below(6));
    return d;
  }
  const PatNode* build(const PatNode* a, UOp* out) {
    switch (a->kind) {
      case PatKind::Any: *out = tensor(random_dims()); return a + 1;
      case PatKind::AnyConst: *out = constant(DType::Float32, static_cast<double>(below(5))); return a + 1;
      case PatKind::Node: break;
      default: return nullptr;
    }
    SmallVec<Op, 40> choices;
    for (int o = 0; o < kNumOps; ++o)
      if (a->ops.has_bit(static_cast<unsigned>(o))) choices.push_back(static_cast<Op>(o));
    const Op op = choices[static_cast<size_t>(below(std::ssize(choices)))];
    if (a->n_src == 0) {  // an elementwise op over tensors, scalars and spread constants
      const Dims dims = random_dims();
      if (op != Op::Add && op != Op::Mul && op != Op::Max && op != Op::Where) return nullptr;
      auto operand = [&](DType dt) {
        if (chance(40)) return broadcast_scalar(constant(dt, below(3)), dims);
        return chance(20) ? constant(dt, below(3)) : param(n_params_++, dt, dims);
      };
      SmallVec<UOp, 3> src;
      if (op == Op::Where) src.push_back(operand(DType::Bool));
      while (src.size() < (op == Op::Where ? 3 : 2)) src.push_back(operand(DType::Float32));
      *out = UOp::make(op, DType::Float32, src);
      return a + 1;
    }
    UOp in;
    const PatNode* next = build(a + 1, &in);
    if (!next) return nullptr;
    *out = move(op, in);
    return *out ? next : nullptr;
  }
  UOp move(Op op, const UOp& in) {
    const Shape& dims = in.shape();
    const auto rank = static_cast<int64_t>(dims.size());
    Dims arg;
    switch (op) {
      case Op::Reshape: {
        if (chance(25)) {
          arg = Dims(dims.begin(), dims.end());
        } else if (chance(40)) {
          arg = {dims.numel()};
        } else if (rank > 1) {
          arg = {dims[0] * dims[1]};
          arg.append(dims.begin() + 2, dims.end());
        }
        if (rank == 0 || chance(20)) arg = Dims(static_cast<size_t>(1 + below(3)), 1);
        int64_t n = 1;
        for (const int64_t d : arg) n *= d;
        if (n != dims.numel()) return {};
        break;
      }
      case Op::Expand:
        for (const int64_t d : dims) arg.push_back(d == 1 && chance(60) ? 1 + below(4) : d);
        break;
      case Op::Permute:
        for (int64_t d = 0; d < rank; ++d) arg.insert(arg.begin() + below(d + 1), d);
        break;
      case Op::Pad:
        for (int64_t d = 0; d < 2 * rank; ++d) arg.push_back(chance(40) ? 0 : below(3));
        break;
      case Op::Shrink:
        for (const int64_t d : dims) {
          const int64_t lo = chance(40) ? 0 : below(d), hi = chance(40) ? d : lo + below(d - lo) + 1;
          arg.push_back(lo);
          arg.push_back(hi);
        }
        break;
      case Op::Flip:
        for (int64_t d = 0; d < rank; ++d)
          if (chance(50)) arg.push_back(d);
        break;
      case Op::Window: {
        if (rank == 0) return {};
        const int64_t axis = below(rank), k = 1 + below(3), stride = chance(50) ? k : 1 + below(3);
        arg = {axis, k, stride, chance(70) ? 1 : 2};
        if (dims[static_cast<size_t>(axis)] < arg[3] * (k - 1) + 1) return {};
        break;
      }
      case Op::Unwindow: {
        if (rank < 2) return {};
        const int64_t axis = below(rank - 1), k = dims.back(), n = dims[static_cast<size_t>(axis)];
        const int64_t stride = chance(60) ? k : 1 + below(3), dilation = chance(70) ? 1 : 2;
        arg = {axis, (n - 1) * stride + dilation * (k - 1) + 1 + (chance(30) ? 1 : 0), stride, dilation};
        break;
      }
      default: return {};
    }
    return UOp::make(op, in.dtype(), {in}, arg);
  }

  std::mt19937_64 random_;
  int64_t n_params_ = 0;
};

void expect_equal_tensors(const UOp& before, const UOp& after, const std::string& what) {
  ASSERT_EQ(before.shape(), after.shape()) << what << "\n" << to_text(before) << "---\n" << to_text(after);
  std::vector<std::vector<std::byte>> memory;
  HostInputs inputs;
  std::mt19937 random(7);
  for (const Node* n : toposort(before)) {
    if (n->op != Op::Param) continue;
    auto& bytes = memory.emplace_back(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)));
    for (int64_t e = 0; e < n->shape.numel(); ++e)
      write_element(n->dtype, bytes.data(), e, Scalar::of(n->dtype, static_cast<int64_t>(random() % 100)));
    inputs.memory[n] = bytes.data();
  }
  const HostTensor a = evaluate_tensor(before, inputs), b = evaluate_tensor(after, inputs);
  EXPECT_EQ(a.bytes, b.bytes) << what << "\n" << to_text(before) << "---\n" << to_text(after);
}

TEST(Rules, EveryMovementRuleProvesItself) {
  const char* seed = getenv("WHIT_FUZZ_SEED");
  Chains random(seed ? strtoull(seed, nullptr, 10) : 3);
  const RuleSet& table = rules::movement();
  for (const Rule* rule : table.rules()) {
    const std::string what = table.full_name(rule);
    const RuleSet alone(what, {*rule});
    int n_fired = 0, n_first = 0;
    for (int t = 0; t < 20000 && (n_fired < 30 || n_first == 0); ++t) {
      const UOp before = random.make(rule->lhs);
      if (!before || before.shape().numel() > 5000) continue;
      const UOp after = alone.rewrite(before);
      if (!after) continue;
      ++n_fired;
      RuleCtx cx;
      const Rule* first = nullptr;
      (void)table.rewrite(before.node(), cx, &first);
      n_first += first == rule;
      expect_equal_tensors(before, after, what);
      if (!rule->grows_why) {
        EXPECT_LE(cost(after), cost(before)) << what << "\n" << to_text(before) << "---\n" << to_text(after);
      }
      const UOp full = graph_rewrite(before, table);
      expect_equal_tensors(before, full, what + " then the table");
      EXPECT_EQ(graph_rewrite(full, table), full) << what;
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GE(n_fired, 5) << what << " hardly ever fires";
    EXPECT_GE(n_first, 1) << what << " never fires first";
  }
}

}  // namespace
}  // namespace whit::test
