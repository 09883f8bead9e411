// Op, OpGroup and AxisType: the enums of the IR. All facts about an op come from ops.def.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace whit {

enum class Op : uint8_t {
#define WHIT_OP(name, text, group, n_src, doc) name,
#include "ir/ops.def"
};
inline constexpr int kNumOps = 0
#define WHIT_OP(name, text, group, n_src, doc) +1
#include "ir/ops.def"
    ;

enum class OpGroup : uint8_t { Leaf, Unary, Binary, Ternary, Movement, Reduce, Memory, Control, Meta };

struct OpInfo {
  const char* name;  ///< the text form, "CMPLT"
  OpGroup group;
  int n_src;  ///< -1 - k: k or more
  const char* doc;
};
const OpInfo& info(Op op);
inline std::string_view name(Op op) { return info(op).name; }

/// A set of ops, and of bits beyond them up to 127.
struct OpSet {
  uint64_t w[2] = {0, 0};
  constexpr OpSet() = default;
  constexpr OpSet(Op op) { add_bit(static_cast<unsigned>(op)); }
  constexpr OpSet(std::initializer_list<Op> ops) {
    for (const Op op : ops) add_bit(static_cast<unsigned>(op));
  }
  constexpr void add_bit(unsigned bit) { w[bit >> 6] |= uint64_t{1} << (bit & 63); }
  constexpr bool has(Op op) const { return has_bit(static_cast<unsigned>(op)); }
  constexpr bool has_bit(unsigned bit) const { return (w[bit >> 6] >> (bit & 63) & 1) != 0; }
  constexpr bool covers(const OpSet& o) const { return (*this | o) == *this; }
  constexpr OpSet operator|(OpSet o) const {
    for (const int i : {0, 1}) o.w[i] |= w[i];
    return o;
  }
  constexpr bool operator==(const OpSet&) const = default;
  static constexpr OpSet any() { return between(static_cast<Op>(0), static_cast<Op>(127)); }
  /// From `first` to `last` in the order of ops.def, both included.
  static constexpr OpSet between(Op first, Op last) {
    OpSet s;
    for (unsigned bit = static_cast<unsigned>(first); bit <= static_cast<unsigned>(last); ++bit) s.add_bit(bit);
    return s;
  }
};
static_assert(kNumOps < 127);

inline constexpr OpSet kElementwise = OpSet::between(Op::Neg, Op::Bitcast) | OpSet::between(Op::Add, Op::MulAcc);
inline constexpr OpSet kCompare{Op::CmpLt, Op::CmpNe, Op::CmpEq};
inline constexpr OpSet kCommutative{Op::Add, Op::Mul, Op::And, Op::Or, Op::Xor, Op::CmpNe, Op::CmpEq};
/// Movement ops of one source whose elements are all elements of the source.
inline constexpr OpSet kViews{Op::Reshape, Op::Expand, Op::Permute, Op::Shrink, Op::Flip, Op::Window};
inline bool is_elementwise(Op op) { return kElementwise.has(op); }
inline bool is_movement(Op op) { return info(op).group == OpGroup::Movement; }
inline bool is_comparison(Op op) { return kCompare.has(op); }
inline bool is_commutative(Op op) { return kCommutative.has(op); }

/// What a loop of a kernel is. The scheduler makes Weak (output) and Reduce ranges; codegen decides the rest.
enum class AxisType : uint8_t {
  Weak,    ///< output axis, not decided
  Global,  ///< parallel over cores or blocks; at most one a nest on the CPU, outermost
  Warp,
  Local,
  Loop,    ///< serial
  Reduce,  ///< serial, folded by a REDUCE
  GroupReduce,
  Tile,    ///< cache block, serial
  Upcast,  ///< register tile of an output: unrolled, or the vector lanes
  Unroll,  ///< unrolled part of a reduce
  Lane,    ///< the axis whose values are the lanes of the kernel's vectors
  Device,
};
inline constexpr int kNumAxisTypes = 12;
std::string_view name(AxisType t);

}  // namespace whit
