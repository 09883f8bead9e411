// Every row of the tables says which ops it speaks about, at which levels, and what must be true of such a node; the
// first row that fails names itself in the error. Which ops a level has at all is the first part of the table. Only the order
// of a LINEAR needs more than a look at one node: check_order.
#include "ir/verify.h"

#include <algorithm>
#include <bit>

#include "base/flags.h"
#include "ir/build.h"
#include "ir/text.h"

namespace whit {
namespace {

constexpr OpSet kAll = OpSet::any();
constexpr OpSet kEffects{Op::Store, Op::End, Op::If, Op::EndIf, Op::EndRange, Op::Sink, Op::Linear, Op::Source, Op::Binary, Op::Program};
constexpr OpSet kMovement = OpSet::between(Op::Reshape, Op::Stack);
constexpr OpSet kSameAsFirst = kMovement | OpSet{Op::Contiguous, Op::ContiguousBackward,
                                                 Op::Detach,     Op::Copy,
                                                 Op::Gather,     Op::Scatter,
                                                 Op::Reduce,     Op::After,
                                                 Op::Index,      Op::Load,
                                                 Op::Stage,      Op::Vec,
                                                 Op::Lane,       Op::Fold};

constexpr OpSet kTensorOps =
    kElementwise | kMovement | OpSet{Op::Bind} |
    OpSet{Op::Const,   Op::Buffer, Op::Param, Op::Variable, Op::Lanes, Op::Detach, Op::Copy,  Op::Gather, Op::Contiguous, Op::ContiguousBackward,
          Op::Scatter, Op::Reduce, Op::Store, Op::After,    Op::Sink,  Op::Call,   Op::Tuple, Op::Linear, Op::GetTuple,   Op::Program};
constexpr OpSet kKernelOps = kElementwise | OpSet{Op::Const, Op::Param, Op::Variable, Op::Range,   Op::Reduce, Op::Store, Op::After,
                                                  Op::Index, Op::Load,  Op::Stage,    Op::Scratch, Op::End,    Op::Sink};
constexpr OpSet kProgramOps =
    kElementwise | OpSet{Op::Const, Op::Param, Op::Variable, Op::Range, Op::Lanes, Op::Reg,  Op::Scratch, Op::Store,  Op::Index,   Op::Load,
                         Op::Vec,   Op::Lane,  Op::Fold,     Op::If,    Op::EndIf, Op::Sink, Op::After,   Op::Linear, Op::EndRange};

constexpr uint8_t kTensor = static_cast<uint8_t>(Level::Tensor), kKernel = static_cast<uint8_t>(Level::Kernel),
                  kProgram = static_cast<uint8_t>(Level::Program), kAnyLevel = kTensor | kKernel | kProgram;

const Node* src(const Node* n, size_t i) { return n->src()[i]; }

// Through AFTERs to what they order.
const Node* base(const Node* n) {
  while (n->op == Op::After) n = src(n, 0);
  return n;
}

bool all_src(const Node* n, size_t from, bool (*ok)(const Node*)) { return std::ranges::all_of(n->src().subspan(from), ok); }

bool sources_have_its_dtype(const Node* n) {
  return std::ranges::all_of(n->src(), [&](const Node* s) { return s->dtype == n->dtype; });
}
bool is_range(const Node* n) { return n->op == Op::Range; }

bool known_monoid(const Arg& arg) {
  static constexpr std::string_view kMonoids[] = {"add", "mul", "max", "min"};
  return arg.kind() == Arg::Kind::Str && std::ranges::count(kMonoids, arg.as_str()) == 1;
}

bool is_list(const Arg& arg, size_t at_least) { return arg.kind() == Arg::Kind::List && arg.as_list().size() >= at_least; }

bool reduces_axes_once(const Node* n) {
  for (size_t i = 2; i < n->arg.as_list().size(); ++i)
    if (n->arg.int_at(i) <= n->arg.int_at(i - 1)) return false;
  return true;
}

// The loops that a node closes, and those that stay open around it, have ids of their own.
bool ids_differ(const Node* n) {
  std::vector<int64_t> ids;
  for (size_t i = 1; i < n->n_src; ++i) ids.push_back(range_id(src(n, i)));
  if (n->range_set)
    for (const Node* r : n->range_set->nodes) ids.push_back(range_id(r));
  std::ranges::sort(ids);
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

// The view that a STORE writes comes from what the AFTER stands for (or belongs to other memory) by ops that show each
// element once.
bool stores_each_element_once(const Node* after) {
  for (const Node* dep : after->src().subspan(1)) {
    if (dep->op != Op::Store) continue;
    for (const Node* n = src(dep, 0); n != src(after, 0) && n != base(src(after, 0)); n = src(n, 0)) {
      if (OpSet{Op::Pad, Op::Expand, Op::Window, Op::Unwindow, Op::Stack}.has(n->op)) return false;
      if (!is_movement(n->op) && n->op != Op::After && n->op != Op::Detach && n->op != Op::Bitcast) break;
    }
  }
  return true;
}

struct Rule {
  const char* name;
  uint8_t levels;
  OpSet ops;
  bool (*ok)(const Node*);
  const char* why;
};

// A condition on the node n.
#define HOLDS(...) [](const Node* n) -> bool { return __VA_ARGS__; }

constexpr Rule kRules[] = {
    // Ops and dtypes.
    {"tensor-ops", kTensor, kAll, HOLDS(kTensorOps.has(n->op)), "no tensor graph has this op"},
    {"kernel-ops", kKernel, kAll, HOLDS(kKernelOps.has(n->op)), "no kernel graph has this op"},
    {"program-ops", kProgram, kAll, HOLDS(kProgramOps.has(n->op)), "no LINEAR has this op"},
    {"effects-are-void", kAnyLevel, kEffects, HOLDS(n->dtype == DType::Void), "it has no value, so its dtype must be void"},
    {"values-are-not-void", kAnyLevel, kElementwise | kSameAsFirst | OpSet::between(Op::Const, Op::Scratch), HOLDS(n->dtype != DType::Void),
     "it has a value, so its dtype must not be void"},
    {"same-dtype", kAnyLevel, OpSet::between(Op::Neg, Op::Trunc) | OpSet::between(Op::Add, Op::Shr) | OpSet{Op::Threefry}, sources_have_its_dtype,
     "the sources and the result must have one dtype"},
    {"compare-dtype", kAnyLevel, kCompare, HOLDS(n->dtype == DType::Bool && src(n, 0)->dtype == src(n, 1)->dtype),
     "a comparison is a bool of two sources of one dtype"},
    {"where-dtype", kAnyLevel, Op::Where, HOLDS(src(n, 0)->dtype == DType::Bool && src(n, 1)->dtype == n->dtype && src(n, 2)->dtype == n->dtype),
     "the condition must be bool and both choices must have the result's dtype"},
    {"floats-only", kAnyLevel, OpSet{Op::Recip, Op::Sqrt, Op::Exp2, Op::Log2, Op::Sin, Op::Trunc, Op::Fdiv}, HOLDS(is_float(n->dtype)),
     "it is for floats only"},
    {"ints-only", kAnyLevel, OpSet{Op::Cdiv, Op::FloorDiv, Op::Shl, Op::Shr}, HOLDS(is_int(n->dtype)), "it is for ints only"},
    {"bits-only", kAnyLevel, OpSet{Op::And, Op::Or, Op::Xor}, HOLDS(!is_float(n->dtype)), "it is for ints and bool only"},
    {"no-bool", kAnyLevel, OpSet{Op::Neg, Op::Cmod, Op::FloorMod, Op::Pow}, HOLDS(n->dtype != DType::Bool), "it is not for bool"},
    {"threefry-dtype", kAnyLevel, Op::Threefry, HOLDS(n->dtype == DType::UInt64), "it is for uint64 only"},
    {"mulacc-dtype", kAnyLevel, Op::MulAcc, HOLDS(!is_float(n->dtype) || n_bytes(n->dtype) >= 4), "it is not for floats of less than 32 bits"},
    {"mulacc-dtypes", kAnyLevel, Op::MulAcc,
     HOLDS(sources_have_its_dtype(n) ||
           (src(n, 0)->dtype == DType::UInt32 && src(n, 1)->dtype == DType::UInt32 && src(n, 2)->dtype == n->dtype && n_bytes(n->dtype) == 4)),
     "the sources and the result must have one dtype, or the factors uint32 and the rest float32 or int32"},
    {"first-dtype", kAnyLevel, kSameAsFirst, HOLDS(n->dtype == src(n, 0)->dtype || (n->op == Op::Index && n->dtype == DType::UInt32)),
     "it must have the dtype of its first source"},
    {"all-one-dtype", kAnyLevel, OpSet{Op::Stack, Op::Vec}, sources_have_its_dtype, "its sources must have one dtype"},
    {"memory-dtype", kAnyLevel, OpSet{Op::Buffer, Op::Reg, Op::Scratch}, HOLDS(!is_weak(n->dtype)), "storage never has a weak dtype"},
    {"param-dtype", kKernel | kProgram, Op::Param, HOLDS(!is_weak(n->dtype)), "storage never has a weak dtype"},
    {"no-weak-dtype", kProgram, kAll, HOLDS(!is_weak(n->dtype)), "weak dtypes are gone in a LINEAR"},

    // Arguments.
    {"buffer-arg", kAnyLevel, Op::Buffer,
     HOLDS(is_list(n->arg, 3) && n->arg.at(0).is_int() && n->arg.at(1).kind() == Arg::Kind::Str && n->arg.int_at(2) >= 0),
     "its argument must be {id, \"device\", number of elements}"},
    {"variable-arg", kAnyLevel, Op::Variable,
     HOLDS(is_list(n->arg, 3) && n->arg.at(0).kind() == Arg::Kind::Str && n->arg.int_at(1) <= n->arg.int_at(2)),
     "its argument must be {\"name\", min, max} with min <= max"},
    {"bind-arg", kTensor, Op::Bind,
     [](const Node* n) { return src(n, 0)->op == Op::Variable && n->arg.is_int() && n->vmin <= n->arg.as_int() && n->arg.as_int() <= n->vmax; },
     "it is for a VARIABLE, with a value between its bounds"},
    {"range-arg", kKernel | kProgram, Op::Range,
     HOLDS(n->arg.kind() == Arg::Kind::Ints && n->arg.as_ints().size() == 3 && n->arg.int_at(1) >= 0 && n->arg.int_at(1) < kNumAxisTypes &&
           n->arg.int_at(2) >= 0),
     "its argument must be [id, axis type, size]"},
    {"monoid", kAnyLevel, Op::Reduce, HOLDS(is_list(n->arg, 1) && known_monoid(n->arg.at(0))), "its monoid must be add, mul, max or min"},
    {"fold-monoid", kAnyLevel, Op::Fold, HOLDS(known_monoid(n->arg)), "its monoid must be add, mul, max or min"},

    // Tensor graphs.
    {"reduce-axes", kTensor, Op::Reduce, HOLDS(n->n_src == 1 && n->arg.as_list().size() > 1 && reduces_axes_once(n)),
     "it must have one source and reduce axes in ascending order, each once"},
    {"gather-index", kTensor, OpSet{Op::Gather, Op::Scatter}, HOLDS(is_int(src(n, 1)->dtype)), "its second source must be integers"},
    {"scatter-arg", kTensor, Op::Scatter,
     HOLDS(n->arg.kind() == Arg::Kind::Str && (n->arg.as_str() == "set" || n->arg.as_str() == "add") && src(n, 2)->dtype == n->dtype),
     "it must \"set\" or \"add\" values of its own dtype"},
    {"store-target", kTensor, Op::After, stores_each_element_once, "its STOREs must go to views of it that hold no element twice"},
    {"store-value", kTensor, Op::Store,
     HOLDS(src(n, 0)->dtype == src(n, 1)->dtype && (src(n, 1)->shape.empty() || src(n, 1)->shape == src(n, 0)->shape)),
     "the value must have the dtype and the shape of the view"},
    {"gettuple-source", kTensor, Op::GetTuple,
     [](const Node* n) {
       const Node* t = src(n, 0);
       if (t->op == Op::Call) t = src(t, 0);
       return t->op == Op::Tuple && static_cast<size_t>(n->arg.as_int()) < t->n_src &&
              src(t, static_cast<size_t>(n->arg.as_int()))->dtype == n->dtype;
     },
     "it must pick a result of a TUPLE and have that one's dtype"},

    // Kernel graphs.
    {"kernel-scalars", kKernel, kAll, HOLDS(n->shape.empty() || OpSet{Op::Param, Op::Scratch, Op::After}.has(n->op)),
     "values of a kernel have shape ()"},
    {"kernel-range-dtype", kKernel, Op::Range, HOLDS(n->dtype == DType::WeakInt), "loops of a kernel graph count in weakint"},
    {"kernel-param", kKernel | kProgram, Op::Param, HOLDS(n->shape.size() == 1), "a buffer of a kernel has shape (number of elements)"},
    {"reduce-ranges", kKernel, OpSet{Op::Reduce, Op::Stage}, HOLDS(n->n_src > 1 && all_src(n, 1, is_range)),
     "what follows its value must be RANGEs, one at least"},
    {"reduce-arg", kKernel, Op::Reduce, HOLDS(n->arg.as_list().size() == 1), "a REDUCE over ranges has no axes"},
    {"kernel-index", kKernel, Op::Index, HOLDS(OpSet{Op::Param, Op::Stage, Op::Scratch}.has(base(src(n, 0))->op)),
     "it must address a PARAM, a STAGE or a SCRATCH"},
    {"index-dtype", kKernel, Op::Index, HOLDS(src(n, 1)->dtype == DType::WeakInt), "the index must be weakint"},
    {"index-gate", kKernel | kProgram, Op::Index, HOLDS(n->n_src == 2 || (n->n_src == 3 && src(n, 2)->dtype == DType::Bool)),
     "its third source is a gate and must be bool"},
    {"kernel-load", kKernel, Op::Load, HOLDS(src(n, 0)->op == Op::Index), "it must read an INDEX"},
    {"kernel-store", kKernel, Op::Store, HOLDS(src(n, 0)->op == Op::Index && OpSet{Op::Param, Op::Scratch}.has(base(src(src(n, 0), 0))->op)),
     "it must write an INDEX of a PARAM or a SCRATCH"},
    {"store-dtype", kKernel | kProgram, Op::Store, HOLDS(src(n, 0)->dtype == src(n, 1)->dtype), "the value must have the dtype of the memory"},
    {"end-sources", kKernel, Op::End, HOLDS(src(n, 0)->op == Op::Store && all_src(n, 1, is_range)), "it must end RANGEs of a STORE"},
    {"range-ids", kKernel, OpSet{Op::End, Op::Reduce, Op::Stage}, ids_differ, "two loops that are open at once have the same id"},
    {"sink-sources", kKernel, Op::Sink, HOLDS(all_src(n, 0, [](const Node* s) { return s->op == Op::End || s->op == Op::Store; })),
     "the SINK of a kernel has ENDs and STOREs only"},
    {"all-loops-end", kKernel, {Op::Sink}, HOLDS(!n->range_set), "a loop is never ended"},

    // LINEARs.
    {"program-lanes", kProgram, kAll, HOLDS(n->shape.size() <= 1), "values of a LINEAR have shape () or (lanes)"},
    {"program-index", kProgram, Op::Index, HOLDS(OpSet{Op::Param, Op::Scratch}.has(base(src(n, 0))->op) && is_int(src(n, 1)->dtype)),
     "it must address a PARAM or a SCRATCH by integers"},
    {"program-access", kProgram, OpSet{Op::Load, Op::Store}, HOLDS(src(n, 0)->op == Op::Index || base(src(n, 0))->op == Op::Reg),
     "it must access an INDEX or a REG"},
    {"if-dtype", kProgram, Op::If, HOLDS(src(n, 0)->dtype == DType::Bool), "its condition must be bool"},
    {"fold-lanes", kProgram, Op::Fold, HOLDS(std::has_single_bit(static_cast<uint64_t>(src(n, 0)->shape.numel()))),
     "the number of lanes must be a power of two"},
};
#undef HOLDS

const char* level_name(Level level) { return level == Level::Tensor ? "a tensor graph" : level == Level::Kernel ? "a kernel graph" : "a LINEAR"; }

// What a LINEAR lists: sources before users, inside the loops that they stand in, and every loop and IF closed in order.
class OrderCheck {
 public:
  // The first listed node that breaks the order; null when none does.
  const Node* run(const Node* linear, std::string& why) {
    for (const Node* n : linear->src()) {
      if (n->op == Op::EndRange || n->op == Op::EndIf) {
        if (open_.empty() || open_.back() != src(n, 0)) {
          why = "it must close the RANGE or IF that was opened last [linear-nesting]";
          return n;
        }
        open_.pop_back();
        for (const Node* inner : defined_.back()) --n_defined_[inner];
        defined_.pop_back();
        continue;
      }
      for (const Node* s : n->src())
        if (!is_defined(s)) {
          why = fmt::format("its source {} is not listed before it, or only in a loop that has ended [linear-order]", s->op);
          return n;
        }
      if (n->op == Op::Range || n->op == Op::If) {
        open_.push_back(n);
        defined_.emplace_back();
      }
      define(n);
    }
    if (open_.empty()) return nullptr;
    why = "it is not closed [linear-nesting]";
    return open_.back();
  }

 private:
  void define(const Node* n) {
    ++n_defined_[n];
    if (!defined_.empty()) defined_.back().push_back(n);
  }
  // Leaves but loops are known everywhere, an address needs no place of its own, and an AFTER only orders.
  bool is_defined(const Node* n) {
    if (info(n->op).group == OpGroup::Leaf && n->op != Op::Range) return true;
    if (const auto it = n_defined_.find(n); it != n_defined_.end() && it->second > 0) return true;
    if (n->op == Op::After) return is_defined(src(n, 0));
    return n->op == Op::Index && all_defined(n);
  }
  bool all_defined(const Node* n) {
    return std::ranges::all_of(n->src(), [&](const Node* s) { return is_defined(s); });
  }

  std::vector<const Node*> open_;
  std::vector<std::vector<const Node*>> defined_;  // in each open block
  std::unordered_map<const Node*, int64_t> n_defined_;
};

bool is_kernel_call(const Node* n) {
  if (n->op != Op::Call) return false;
  const Node* body = src(n, 0);
  if (body->op == Op::Program || body->op == Op::Copy) return true;
  if (body->op != Op::Sink || body->n_src == 0) return false;
  const Node* first = src(body, 0);
  return first->op == Op::End || (first->op == Op::Store && src(first, 0)->op == Op::Index);
}

}  // namespace

std::string find_illegal(const UOp& root, Level level) {
  // Kernels that are called keep their own rules.
  const bool has_calls = level == Level::Tensor;
  const NodeList checked =
      post_order(std::span(&root, 1), [&](const Node* n) { return std::pair(has_calls && is_kernel_call(n) ? 1u : 0u, n->n_src); });
  std::unordered_map<const Node*, int64_t> number_of;
  for (const Node* n : toposort(root)) number_of.emplace(n, static_cast<int64_t>(number_of.size()));
  const auto report = [&](const Node* n, const std::string& why) {
    std::string line;
    detail::append_node_text(line, n, number_of.at(n), number_of);
    constexpr size_t kMaxLine = 200;  // a SINK may have thousands of sources
    if (line.size() > kMaxLine) line = line.substr(0, kMaxLine) + "...";
    return fmt::format("{}: {} in {}", line, why, level_name(level));
  };
  for (const Node* n : checked) {
    for (const Rule& rule : kRules)
      if ((rule.levels & static_cast<uint8_t>(level)) && rule.ops.has(n->op) && !rule.ok(n))
        return report(n, fmt::format("{} [{}]", rule.why, rule.name));
    std::string why;
    if (level == Level::Program && n->op == Op::Linear)
      if (const Node* bad = OrderCheck().run(n, why)) return report(bad, why);
    if (has_calls && is_kernel_call(n) && src(n, 0)->op == Op::Sink)
      if (std::string inner = find_illegal(UOp(src(n, 0)), Level::Kernel); !inner.empty()) return inner;
  }
  return {};
}

void verify(const UOp& root, Level level, std::string_view where) {
  const std::string illegal = find_illegal(root, level);
  if (!illegal.empty()) raise(ErrorKind::Internal, "[verify] after {}: {}", where, illegal);
}

void verify_if_asked(const UOp& root, Level level, std::string_view where) {
  if (flag::SPEC()) verify(root, level, where);
}

}  // namespace whit
