#include "ir/op.h"

#include "base/error.h"

namespace whit {
namespace {

constexpr OpInfo kOps[] = {
#define WHIT_OP(name, text, group, n_src, doc) {text, OpGroup::group, n_src, doc},
#include "ir/ops.def"
};
constexpr const char* kAxisNames[kNumAxisTypes] = {"WEAK",         "GLOBAL", "WARP",   "LOCAL",  "LOOP", "REDUCE",
                                                   "GROUP_REDUCE", "TILE",   "UPCAST", "UNROLL", "LANE", "DEVICE"};

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<size_t>(op)]; }

std::string_view name(AxisType t) { return kAxisNames[static_cast<size_t>(t)]; }

}  // namespace whit
