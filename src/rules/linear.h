// Index arithmetic in normal form: a sum of terms times constants, plus a constant; and what floor division, floor
// modulo and comparisons of such sums by constants are. Everything works on weakint, which is unbounded: a number past
// 64 bits makes a function decline.
//
// How it works. A sum is split into the part that the divisor c divides and the rest R. If R stays inside one period of
// c, the quotient is linear. Otherwise, in this order: multiples of c are added to the factors of R to bring it into
// one period; a common factor of R and c is cancelled; a divisor d of c for which R // d is linear leaves (R // d) //
// (c / d). Quotient and remainder take the same decisions, so that (x // c) * c + x % c is seen to be x again.
#pragma once
#include <optional>

#include "ir/build.h"

namespace whit {

struct Linear {
  struct Term {
    UOp node;
    int64_t factor;
  };
  SmallVec<Term, 8> terms{};
  int64_t constant = 0;
  bool ok = true;  ///< false: a number did not fit, or there are more than kMaxTerms terms
  static constexpr size_t kMaxTerms = 64;

  void add(const UOp& node, int64_t factor);
  void add(const Linear& other, int64_t factor);
  void add_constant(int64_t value);
  /// The factor of a term, 0 where there is none.
  int64_t factor_of(const UOp& node) const;
  /// Exact bounds over the terms' bounds, as if the terms were independent. Null when they do not fit 64 bits.
  struct Bounds {
    int64_t lo, hi;
  };
  std::optional<Bounds> bounds() const;
  /// The sum as a node: terms of outer loops first, constant last.
  UOp to_uop() const;
};

inline Linear negative(const Linear& l) {
  Linear minus;
  minus.add(l, -1);
  return minus;
}
/// Flattens ADD, SUB, NEG and MUL by a constant; past kMaxSteps (heavy sharing has exponentially many paths) what is left
/// is a term.
Linear linear_of(const UOp& u);

/// Normal forms; null when a number would not fit. Exact for every c, also 0 and negative ones.
UOp linear_sum(Linear l);  ///< quotients and remainders of one value are put together again
inline UOp linear_sum(const UOp& u) { return linear_sum(linear_of(u)); }
UOp linear_div(const UOp& x, int64_t c);
UOp linear_mod(const UOp& x, int64_t c);
UOp linear_compare(Op op, const UOp& a, const UOp& b);  ///< CMPLT, CMPEQ or CMPNE

}  // namespace whit
