#include "ir/op.h"

#include "base/error.h"

namespace whit {
namespace {

constexpr OpInfo kOps[] = {
#define WHIT_OP(name, text, group, n_src, doc) {text, OpGroup::group, n_src, doc},
#include "ir/ops.def"
#undef WHIT_OP
};
constexpr const char* kAxisNames[kNumAxisTypes] = {"WEAK",         "GLOBAL", "WARP",   "LOCAL",  "LOOP", "REDUCE",
                                                   "GROUP_REDUCE", "TILE",   "UPCAST", "UNROLL", "LANE", "DEVICE"};

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<size_t>(op)]; }

Op op_by_name(std::string_view text) {
  for (int i = 0; i < kNumOps; ++i)
    if (text == kOps[i].name) return static_cast<Op>(i);
  raise(ErrorKind::Key, fmt::format("[ir] unknown op '{}'", text));
}

bool is_commutative(Op op) {
  switch (op) {
    case Op::Add:
    case Op::Mul:
    case Op::And:
    case Op::Or:
    case Op::Xor:
    case Op::CmpNe:
    case Op::CmpEq:
      return true;
    default:
      return false;
  }
}

std::string_view name(AxisType t) { return kAxisNames[static_cast<size_t>(t)]; }

AxisType axis_type_by_name(std::string_view text) {
  for (int i = 0; i < kNumAxisTypes; ++i)
    if (text == kAxisNames[i]) return static_cast<AxisType>(i);
  raise(ErrorKind::Key, fmt::format("[ir] unknown axis type '{}'", text));
}

}  // namespace whit
