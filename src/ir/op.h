// Op, OpGroup and AxisType: the enums of the IR. All facts about an op come from ops.def.
#pragma once
#include <cstdint>
#include <string_view>

namespace whit {

enum class Op : uint8_t {
#define WHIT_OP(name, text, group, n_src, doc) name,
#include "ir/ops.def"
#undef WHIT_OP
};
inline constexpr int kNumOps = 0
#define WHIT_OP(name, text, group, n_src, doc) +1
#include "ir/ops.def"
#undef WHIT_OP
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
/// Finds an op by its text form. Error: Key.
Op op_by_name(std::string_view text);

inline bool is_elementwise(Op op) {
  return (op >= Op::Neg && op <= Op::Bitcast) || (op >= Op::Add && op <= Op::MulAcc);
}
inline bool is_movement(Op op) { return info(op).group == OpGroup::Movement; }
inline bool is_comparison(Op op) { return op == Op::CmpLt || op == Op::CmpNe || op == Op::CmpEq; }
bool is_commutative(Op op);

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
AxisType axis_type_by_name(std::string_view text);

}  // namespace whit
