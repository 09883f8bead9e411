#include "render/program.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ir/build.h"
#include "ir/eval.h"

namespace whit::render {
namespace {

void want_spread(LinearProgram& p, const Node* scalar, int64_t lanes) {
  if (lanes == 0 || lanes_of(scalar) != 0 || scalar->op == Op::Const) return;
  std::vector<int64_t>& have = p.spreads[scalar];
  if (std::ranges::find(have, lanes) == have.end()) have.push_back(lanes);
}

// A memory access of the list: which buffers it touches, and which of its scalars it needs as lanes.
void note_access(LinearProgram& p, const Node* n) {
  const Access a = access_of(n);
  if (a.storage->op == Op::Param) {
    KernelSignature::Buffer& b = *std::ranges::find(p.signature.buffers, a.storage->arg.int_at(0), &KernelSignature::Buffer::slot);
    (n->op == Op::Load ? b.is_read : b.is_written) = true;
  }
  if (n->op == Op::Store) want_spread(p, n->src()[1], a.lanes);
  if (!a.gate) return;
  if (!a.contiguous) want_spread(p, a.gate, a.lanes);
  if (n->op == Op::Load && lanes_of(a.gate) == 0 && (a.contiguous || a.lanes == 0))
    p.n_zero_bytes = std::max(p.n_zero_bytes, element_bytes(n->dtype) * std::max<int64_t>(a.lanes, 1));
}

// WHERE chooses between vectors by a scalar too.
void note_operands(LinearProgram& p, const Node* n) {
  for (size_t i = n->op == Op::Where; i < n->n_src; ++i) want_spread(p, n->src()[i], lanes_of(n));
}

// GLOBAL extents stand one after another in the launch space, in the order of the list.
void place_globals(LinearProgram& p) {
  int64_t total = 0, open = 0;
  bool stray_store = false;
  for (const Node* n : p.linear->src()) {
    if (n->op == Op::Range && axis_type(n) == AxisType::Global) {
      WHIT_CHECK(open == 0, "a GLOBAL range inside another");
      WHIT_CHECK(n->n_src == 0, "a GLOBAL range of symbolic size");
      p.global_offset[n] = total;
      total += range_size(n);
      p.signature.extents.push_back(range_size(n));
      ++open;
    } else if (n->op == Op::EndRange && axis_type(n->src()[0]) == AxisType::Global) {
      --open;
    } else if (n->op == Op::Store && access_of(n).storage->op == Op::Param) {
      stray_store |= open == 0;
    }
  }
  if (p.signature.extents.empty()) return;
  WHIT_CHECK(!stray_store, "a STORE outside the GLOBAL ranges of its kernel would be done by every thread");
  p.signature.n_global = total;
}

}  // namespace

const Node* storage_of(const Node* n) {
  while (n->op == Op::After) n = n->src()[0];
  WHIT_CHECK(n->op == Op::Param || n->op == Op::Scratch || n->op == Op::Reg, "{} is no storage", n->op);
  return n;
}

Access access_of(const Node* n) {
  Access a;
  const Node* at = n->src()[0];
  while (at->op == Op::After) at = at->src()[0];
  if (at->op == Op::Reg) {
    a.storage = at;
    a.lanes = lanes_of(at);
    a.contiguous = true;
    return a;
  }
  WHIT_CHECK(at->op == Op::Index, "{} of {}", n->op, at->op);
  a.storage = storage_of(at->src()[0]);
  a.index = at->src()[1];
  if (at->n_src > 2 && !(at->src()[2]->op == Op::Const && at->src()[2]->arg.to_int() == 1)) a.gate = at->src()[2];
  const int64_t index_lanes = lanes_of(a.index);
  a.lanes = n->op == Op::Load ? lanes_of(n) : std::max(lanes_of(n->src()[1]), index_lanes);
  if (n->op == Op::Store && a.lanes == 0 && a.gate) a.lanes = lanes_of(a.gate);
  a.contiguous = a.lanes > 0 && index_lanes == 0;
  return a;
}

LinearProgram analyze(const UOp& program) {
  LinearProgram p;
  p.linear = program.op() == Op::Program && program.n_src() > 1 ? program.src(1) : program;
  WHIT_CHECK(p.linear.op() == Op::Linear, "a renderer wants a LINEAR, not {}", program.op());
  std::map<int64_t, const Node*> params, scratch, regs;
  std::map<std::string, const Node*, std::less<>> variables;
  // Leaves need not be listed: they are found as sources of what is.
  const auto note_leaf = [&](const Node* n) {
    while (n->op == Op::After) n = n->src()[0];
    if (n->op == Op::Param) {
      params.try_emplace(n->arg.int_at(0), n);
    } else if (n->op == Op::Scratch) {
      scratch[n->arg.int_at(0)] = n;
    } else if (n->op == Op::Reg) {
      regs[n->arg.int_at(0)] = n;
    } else if (n->op == Op::Variable) {
      variables[std::string(n->arg.at(0).as_str())] = n;
    }
  };
  for (const Node* n : p.linear->src()) {
    note_leaf(n);
    for (const Node* s : n->src()) {
      note_leaf(s);
      if (s->op == Op::Index)
        for (const Node* t : s->src()) note_leaf(t);
    }
  }
  for (const auto& [slot, n] : params) {
    p.params.push_back(n);
    p.signature.buffers.push_back({slot, n->dtype, n->shape.numel(), false, false});
  }
  for (const Node* n : p.linear->src()) {
    if (n->op == Op::Load || n->op == Op::Store) note_access(p, n);
    else if (is_elementwise(n->op)) note_operands(p, n);
    else if (n->op == Op::Vec && is_splat(n)) want_spread(p, n->src()[0], lanes_of(n));
  }
  for (const auto& [id, n] : regs) p.regs.push_back(n);
  for (const auto& [text, n] : variables) {
    p.variables.push_back(n);
    p.signature.variables.push_back(text);
  }
  for (const auto& [id, n] : scratch) {
    p.scratch.push_back(n);
    p.scratch_offset[id] = p.signature.scratch_bytes;
    p.signature.scratch_bytes += (n->shape.numel() * element_bytes(n->dtype) + 63) / 64 * 64;
  }
  place_globals(p);
  return p;
}

Class class_of(DType dt) {
  if (dt == DType::Bool) return kBool;
  if (dt == DType::Float32 || dt == DType::Float64) return kFloat;
  if (is_float(dt)) return kHalf;
  return is_unsigned(dt) ? kUnsigned : kSigned;
}

bool divisor_is_safe(const Node* n) {
  const Node* y = n->src()[1];
  if (y->dtype == DType::UInt64) return y->op == Op::Const && y->arg.to_int() != 0;
  return y->vmin > 0 || y->vmax < -1;
}

bool shift_is_in_range(const Node* n) {
  const Node* y = n->src()[1];
  const int64_t width = bit_width(y->dtype);
  // A uint64 has no bounds of its own, but the narrower number that it was has.
  if (y->dtype == DType::UInt64 && y->op == Op::Cast && is_int(y->src()[0]->dtype)) y = y->src()[0];
  if (y->dtype == DType::UInt64) return y->op == Op::Const && y->arg.to_int() >= 0 && y->arg.to_int() < width;
  return y->vmin >= 0 && y->vmax < width;
}

bool right_is_a_number(const Node* n) {
  const Node* y = n->src()[1];
  return y->op == Op::Const && is_float(y->dtype) && !y->arg.is_invalid() && !std::isnan(y->arg.to_double());
}

const TextRow* find_row(std::span<const TextRow> table, Op op, DType dt, const Node* n) {
  const Class c = class_of(dt);
  for (const TextRow& row : table)
    if (row.ops.has(op) && (row.classes & c) && (!row.when || (n && row.when(n)))) return &row;
  return nullptr;
}

void expand(std::string& out, std::string_view text, const Filler& filler, std::string_view indent) {
  for (size_t i = 0; i < text.size();) {
    const size_t special = std::min(text.find_first_of("{\n", i), text.size());
    out += text.substr(i, special - i);
    i = special;
    if (i == text.size()) break;
    // A brace that opens no placeholder is text: C has braces of its own, always followed by a space or brace.
    const size_t close = text[i] == '{' ? text.find('}', i) : std::string_view::npos;
    if (text[i] == '{' && close != std::string_view::npos && close != i + 1 && text[i + 1] != ' ') {
      filler.append(out, text.substr(i + 1, close - i - 1));
      i = close + 1;
      continue;
    }
    out.push_back(text[i++]);
    if (out.back() == '\n') out += indent;
  }
}

uint64_t constant_bits(const Node* constant) {
  if (constant->arg.is_invalid()) return 0;
  const Scalar v = scalar_of(UOp(constant));
  if (!is_float(v.dtype)) return static_cast<uint64_t>(v.i);
  uint64_t bits = 0;
  write_element(v.dtype, &bits, 0, v);
  return bits;
}

bool is_splat(const Node* vec) {
  return std::ranges::all_of(vec->src(), [&](const Node* s) { return s == vec->src()[0]; });
}

}  // namespace whit::render
