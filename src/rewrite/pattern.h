// Patterns: values of one literal type that describe a small tree of nodes, for both sides of a rule.
//
//   rule("mul-const", (i * c0) * c1, i * fold(c0 * c1))
//
// Variables: x y z u v w match any node, i j k the index type (weakint), n m any int, f g h floats, p q r bools; c0..c3
// match an int or bool constant, d0..d2 a constant of any type (never Invalid). A name that occurs twice must match the
// same node. A plain number matches an int or bool constant of that value; a number with a point a float constant with
// the same bits. '/' and '%' do not exist: the reader must see which division is meant.
#pragma once
#include <cstdint>

#include "ir/uop.h"

namespace whit {

inline constexpr unsigned kNoSrcBit = kNumOps;  ///< the bit of an OpSet that says "there is no such source"

namespace pat {

/// Sets of dtypes, a bit each.
using DTypes = uint32_t;
constexpr DTypes bit(DType dt) { return DTypes{1} << static_cast<unsigned>(dt); }
inline constexpr DTypes kAnyDType = (DTypes{1} << kNumDTypes) - 1;
inline constexpr DTypes kIndex = bit(DType::WeakInt);
inline constexpr DTypes kBool = bit(DType::Bool);
inline constexpr DTypes kFloats = kAnyDType & ~(bit(DType::WeakFloat) - 1);
inline constexpr DTypes kInts = kAnyDType & ~kFloats & ~kBool & ~bit(DType::Void);
inline constexpr DTypes kSizedInts = kInts & ~kIndex;
inline constexpr DTypes kNonFloats = kInts | kBool;

inline constexpr unsigned kNumSlots = 24;
inline constexpr uint8_t kNoSlot = 255;

struct Var {
  uint8_t slot;
  DTypes dtypes;
};
struct ConstVar {  ///< an int or bool constant; its value is read as int64_t
  uint8_t slot;
};
struct AnyConstVar {  ///< a constant of any dtype
  uint8_t slot;
};
inline constexpr Var x{0, kAnyDType}, y{1, kAnyDType}, z{2, kAnyDType}, u{3, kAnyDType}, v{4, kAnyDType}, w{5, kAnyDType};
inline constexpr Var i{6, kIndex}, j{7, kIndex}, k{8, kIndex};
inline constexpr Var n{9, kInts}, m{10, kInts};
inline constexpr Var f{11, kFloats}, g{12, kFloats}, h{13, kFloats};
inline constexpr Var p{14, kBool}, q{15, kBool}, r{16, kBool};
inline constexpr ConstVar c0{17}, c1{18}, c2{19}, c3{20};
inline constexpr AnyConstVar d0{21}, d1{22}, d2{23};

enum class PatKind : uint8_t { Any, Const, AnyConst, IntLit, FloatLit, Node };

struct PatNode {
  OpSet ops{};      ///< of Kind Node
  int64_t imm = 0;  ///< the literal, or the bits of the double
  DTypes dtypes = kAnyDType;
  PatKind kind = PatKind::Any;
  uint8_t slot = kNoSlot;
  uint8_t n_src = 0;
  uint8_t flags = 0;
  static constexpr uint8_t kRest = 1, kAll = 2, kComm = 4, kFold = 8;
  constexpr bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

/// Called for a pattern that cannot be built: a compile error in a constant expression, else an internal error.
[[noreturn]] void pattern_error(const char* what);

struct Pat {
  static constexpr unsigned kMaxNodes = 12;
  PatNode node[kMaxNodes]{};  ///< pre-order
  uint8_t len = 0;

  constexpr Pat() = default;
  constexpr explicit Pat(const PatNode& root) : node{root}, len(1) {}
  constexpr Pat(Var a) : Pat(PatNode{.dtypes = a.dtypes, .slot = a.slot}) {}
  constexpr Pat(ConstVar a) : Pat(PatNode{.dtypes = kNonFloats, .kind = PatKind::Const, .slot = a.slot}) {}
  constexpr Pat(AnyConstVar a) : Pat(PatNode{.kind = PatKind::AnyConst, .slot = a.slot}) {}
  constexpr Pat(int value) : Pat(static_cast<int64_t>(value)) {}
  constexpr Pat(int64_t value) : Pat(PatNode{.imm = value, .dtypes = kNonFloats, .kind = PatKind::IntLit}) {}
  constexpr Pat(double value) : Pat(PatNode{.imm = __builtin_bit_cast(int64_t, value), .dtypes = kFloats, .kind = PatKind::FloatLit}) {}

  constexpr void append(const Pat& a) {
    if (len + a.len > kMaxNodes) pattern_error("a pattern has more than 12 nodes");
    for (unsigned s = 0; s < a.len; ++s) node[len + s] = a.node[s];
    len = static_cast<uint8_t>(len + a.len);
  }
  /// The same pattern, its root restricted to these dtypes.
  constexpr Pat of(DTypes dtypes) const {
    Pat made = *this;
    made.node[0].dtypes &= dtypes;
    return made;
  }
  constexpr Pat of(DType dtype) const { return of(bit(dtype)); }
  constexpr Pat with_flag(uint8_t flag) const {
    Pat made = *this;
    made.node[0].flags |= flag;
    return made;
  }
};

/// A node of one of `ops` over exactly these sources.
constexpr Pat node_of(OpSet ops, DTypes dtypes, std::initializer_list<const Pat*> src) {
  Pat made(PatNode{.ops = ops, .dtypes = dtypes, .kind = PatKind::Node, .n_src = static_cast<uint8_t>(src.size())});
  for (const Pat* s : src) made.append(*s);
  return made;
}
constexpr Pat op(OpSet ops) { return node_of(ops, kAnyDType, {}); }
constexpr Pat op(OpSet ops, const Pat& a) { return node_of(ops, kAnyDType, {&a}); }
constexpr Pat op(OpSet ops, const Pat& a, const Pat& b) { return node_of(ops, kAnyDType, {&a, &b}); }
constexpr Pat op(OpSet ops, const Pat& a, const Pat& b, const Pat& c) { return node_of(ops, kAnyDType, {&a, &b, &c}); }

// Arithmetic keeps the dtype of its operands, so it has the dtypes that both may have.
constexpr Pat same(Op o, const Pat& a) { return node_of(o, a.node[0].dtypes, {&a}); }
constexpr Pat same(Op o, const Pat& a, const Pat& b) { return node_of(o, a.node[0].dtypes & b.node[0].dtypes, {&a, &b}); }
constexpr Pat compare(Op o, const Pat& a, const Pat& b) { return node_of(o, kBool, {&a, &b}); }

constexpr Pat operator+(const Pat& a, const Pat& b) { return same(Op::Add, a, b); }
constexpr Pat operator-(const Pat& a, const Pat& b) { return same(Op::Sub, a, b); }
constexpr Pat operator*(const Pat& a, const Pat& b) { return same(Op::Mul, a, b); }
constexpr Pat operator&(const Pat& a, const Pat& b) { return same(Op::And, a, b); }
constexpr Pat operator|(const Pat& a, const Pat& b) { return same(Op::Or, a, b); }
constexpr Pat operator^(const Pat& a, const Pat& b) { return same(Op::Xor, a, b); }
constexpr Pat operator<(const Pat& a, const Pat& b) { return compare(Op::CmpLt, a, b); }
constexpr Pat ne(const Pat& a, const Pat& b) { return compare(Op::CmpNe, a, b); }
constexpr Pat eq(const Pat& a, const Pat& b) { return compare(Op::CmpEq, a, b); }
constexpr Pat operator-(const Pat& a) { return same(Op::Neg, a); }
/// Not of a bool: XOR with true.
constexpr Pat operator!(const Pat& a) {
  const Pat t(1);
  return node_of(Op::Xor, kBool, {&a, &t});
}
constexpr Pat floor_div(const Pat& a, const Pat& b) { return same(Op::FloorDiv, a, b); }
constexpr Pat floor_mod(const Pat& a, const Pat& b) { return same(Op::FloorMod, a, b); }
constexpr Pat trunc_div(const Pat& a, const Pat& b) { return same(Op::Cdiv, a, b); }
constexpr Pat trunc_mod(const Pat& a, const Pat& b) { return same(Op::Cmod, a, b); }
constexpr Pat fdiv(const Pat& a, const Pat& b) { return same(Op::Fdiv, a, b); }
constexpr Pat max(const Pat& a, const Pat& b) { return same(Op::Max, a, b); }
constexpr Pat min(const Pat& a, const Pat& b) { return same(Op::Min, a, b); }
constexpr Pat shl(const Pat& a, const Pat& b) { return same(Op::Shl, a, b); }
constexpr Pat shr(const Pat& a, const Pat& b) { return same(Op::Shr, a, b); }
constexpr Pat pow(const Pat& a, const Pat& b) { return same(Op::Pow, a, b); }
constexpr Pat recip(const Pat& a) { return same(Op::Recip, a); }
constexpr Pat sqrt(const Pat& a) { return same(Op::Sqrt, a); }
constexpr Pat exp2(const Pat& a) { return same(Op::Exp2, a); }
constexpr Pat log2(const Pat& a) { return same(Op::Log2, a); }
constexpr Pat sin(const Pat& a) { return same(Op::Sin, a); }
constexpr Pat trunc(const Pat& a) { return same(Op::Trunc, a); }
constexpr Pat where(const Pat& c, const Pat& a, const Pat& b) { return node_of(Op::Where, a.node[0].dtypes & b.node[0].dtypes, {&c, &a, &b}); }
/// A cast; on the result side to the dtype of the rule's root.
constexpr Pat cast(const Pat& a) { return node_of(Op::Cast, kAnyDType, {&a}); }

/// Matches `a` and captures its root.
constexpr Pat bind(Var name, const Pat& a) {
  Pat t = a.of(name.dtypes);
  t.node[0].slot = name.slot;
  return t;
}
/// Either order of the two operands: two entries when the set is built.
constexpr Pat comm(const Pat& a) { return a.with_flag(PatNode::kComm); }
/// The node may have further sources after the ones given.
constexpr Pat rest(const Pat& a) { return a.with_flag(PatNode::kRest); }
/// A node of `ops`, all sources (any number, also none) of which match `each`. No captures in `each`.
constexpr Pat all(OpSet ops, const Pat& each) { return op(ops, each).with_flag(PatNode::kAll); }
/// Result side: computed now. A weakint result past 64 bits declines the rule.
constexpr Pat fold(const Pat& a) { return a.with_flag(PatNode::kFold); }

/// What follows the tree at `a`.
const PatNode* skip(const PatNode* a);

}  // namespace pat

using pat::Pat;

/// What a pattern captured. It owns nothing: the root's owner keeps all nodes alive.
struct Rule;
struct Match {
  const Node* slot[pat::kNumSlots];
  const Node* root;
  const void* row = nullptr;  ///< the table row that matched: a Rule* in a RuleSet

  UOp operator[](pat::Var a) const { return UOp(slot[a.slot]); }
  UOp operator[](pat::AnyConstVar a) const { return UOp(slot[a.slot]); }
  int64_t operator[](pat::ConstVar a) const { return slot[a.slot]->arg.to_int(); }
  UOp constant(pat::ConstVar a) const { return UOp(slot[a.slot]); }
  const Node* raw(pat::Var a) const { return slot[a.slot]; }
  UOp root_uop() const { return UOp(root); }
};

}  // namespace whit
