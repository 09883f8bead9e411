// Random instances of the left sides of rules, and values for their leaves.
#pragma once
#include <optional>
#include <random>
#include <unordered_map>

#include "ir/build.h"
#include "ir/eval.h"
#include "rewrite/rewrite.h"

namespace whit::test {

class Instances {
 public:
  /// `strong`: graphs as decompose's tables see them, without weak dtypes, but with every float.
  explicit Instances(uint64_t seed, bool strong = false) : random_(seed), strong_(strong) {}
  /// A node that `lhs` may match (conditions are not asked); null when this attempt did not work out.
  UOp make(const Pat& lhs);
  UOp leaf(DType dtype);
  UOp index_expression();
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  UOp random_constant(DType dtype);
  Scalar random_value(const Node* leaf);

 private:
  const pat::PatNode* build(const pat::PatNode* a, DType dtype, UOp* out);
  DType pick(pat::DTypes allowed);
  UOp bounded(DType dtype);

  std::mt19937_64 random_;
  bool strong_;
  std::unordered_map<uint8_t, UOp> captured_{};
  int64_t n_leaves_ = 0;
};

/// What leaves are worth; drawn at first use.
using Values = std::unordered_map<const Node*, Scalar>;
/// The value of an elementwise graph. An INDEX is worth its flat index, or -1 where its gate is false; a LOAD is a fixed
/// function of that, 0 where the gate is false. A VEC is known below LANE and FOLD only.
Scalar evaluate(const UOp& root, Values& values, Instances& random);
/// Equal bits; all NaNs are equal.
bool same_value(const Scalar& a, const Scalar& b);
std::string show(const Scalar& a);

/// Nodes but constants, divisions and transcendental functions being dearer.
int64_t cost(const UOp& root);

}  // namespace whit::test
