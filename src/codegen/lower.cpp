#include "codegen/lower.h"

#include <algorithm>

#include "base/flags.h"
#include "codegen/loops.h"
#include "codegen/optimize.h"
#include "ir/build.h"
#include "ir/remake.h"
#include "ir/verify.h"
#include "render/renderer.h"
#include "rewrite/passes.h"

namespace whit {
namespace {

// "r_512_32" for a kernel that reduces, "e_4096" for an elementwise one: the sizes of the first nest's loops.
std::string kernel_name(const UOp& sink) {
  std::string name = std::ranges::any_of(toposort(sink), [](const Node* n) { return n->op == Op::Reduce; }) ? "r" : "e";
  std::vector<const Node*> ranges;
  for (const Node* n : toposort(sink.src(0)))
    if (n->op == Op::Range && range_size(n) > 1) ranges.push_back(n);
  std::sort(ranges.begin(), ranges.end(), [](const Node* a, const Node* b) { return range_id(a) < range_id(b); });
  for (size_t i = 0; i < ranges.size() && i < 8; ++i) name += fmt::format("_{}", range_size(ranges[i]));
  if (sink.n_src() > 1) name += fmt::format("_n{}", sink.n_src());
  return name;
}

bool is_narrow(DType dt) { return is_float(dt) && !is_weak(dt) && n_bytes(dt) < 4; }

// Narrow floats are folded in float32 and rounded once.
UOp widen_reduces(const UOp& sink) {
  Remade made;
  for (const Node* n : toposort(sink)) {
    if (n->op != Op::Reduce || !is_narrow(n->dtype)) {
      made.update(n);
      continue;
    }
    std::vector<UOp>& src = made.src(n);
    src[0] = cast(src[0], DType::Float32);
    made.set(n, cast(UOp::make(Op::Reduce, DType::Float32, src, n->arg), n->dtype));
  }
  return made.of(sink.node());
}

// What the renderer has no text for.
bool needs_decompose(const UOp& list, const Caps& caps) {
  for (const Node* n : list->src()) {
    if (is_weak(n->dtype)) return true;
    if (!is_elementwise(n->op) && n->op != Op::Fold) continue;
    if (is_elementwise(n->op) && !caps.has(n->op)) return true;
    if (is_float(n->dtype) && !caps.has_arith(n->dtype)) return true;
    for (const Node* s : n->src())
      if (is_float(s->dtype) && !caps.has_arith(s->dtype)) return true;
  }
  return false;
}

}  // namespace

Arg ProgramInfo::to_arg() const {
  std::vector<Arg> a{Arg(name), extent, scratch_bytes, min_part};
  for (const std::string& v : variables) a.emplace_back(v);
  return Arg(std::span<const Arg>(a));
}

ProgramInfo ProgramInfo::of(const UOp& program) {
  WHIT_CHECK(program.op() == Op::Program, "program info of a {}", program.op());
  const Arg& a = program.arg();
  ProgramInfo p;
  p.name = a.at(0).as_str();
  p.extent = a.int_at(1);
  p.scratch_bytes = a.int_at(2);
  p.min_part = a.int_at(3);
  for (size_t i = 4; i < a.as_list().size(); ++i) p.variables.emplace_back(a.at(i).as_str());
  return p;
}

UOp lower_optimized(const UOp& sink, const Target& target, int64_t min_part) {
  ProgramInfo p;
  p.name = kernel_name(sink);
  p.extent = 0;
  p.min_part = min_part;
  const codegen::LoopTree tree = codegen::expand(sink, target);
  UOp list = codegen::linearize(tree, p.variables, p.extent);
  const Caps& caps = renderer_by_name(target.renderer).caps;
  if (needs_decompose(list, caps)) list = decompose(list, caps);
  verify_if_asked(list, Level::Program, "linearize and decompose");
  // The renderer places scratch memory and reads the variables: it decides.
  const KernelSignature signature = signature_of(list);
  p.scratch_bytes = signature.scratch_bytes;
  p.variables = signature.variables;
  return UOp::make(Op::Program, DType::Void, {sink, list}, p.to_arg());
}

UOp lower_kernel(const UOp& kernel, const Target& target, codegen::Decisions* decisions) {
  verify_if_asked(kernel, Level::Kernel, "scheduling");
  const UOp sink = widen_reduces(run_passes(PassStage::Kernel, kernel));
  if (flag::NOOPT() || !renderer_by_name(target.renderer).has_lanes) return lower_optimized(sink, target);
  int64_t min_part = 1;
  const UOp optimised = run_passes(PassStage::Loops, codegen::optimize(sink, target, &min_part, decisions));
  verify_if_asked(optimised, Level::Kernel, "optimize");
  return lower_optimized(optimised, target, min_part);
}

}  // namespace whit
