#include "render/writer.h"

#include <bit>

#include "ir/build.h"
#include "ir/eval.h"

namespace whit::render {

void Writer::walk() {
  for (const Node* n : p_.linear->src()) node(n);
  WHIT_CHECK(open_.empty(), "a loop or IF is not closed");
}

void Writer::bind(const Node* n, const std::string& name) {
  value_[n] = name;
  const auto it = p_.spreads.find(n);
  if (it == p_.spreads.end()) return;
  for (const int64_t lanes : it->second) spread_[{n, lanes}] = spread(n->dtype, lanes, name);
}

std::string Writer::operand(const Node* n, int64_t lanes) {
  while (n->op == Op::After) n = n->src()[0];
  if (n->op == Op::Const) return constant_text(n->dtype, lanes, constant_bits(n));
  if (n->op == Op::Lanes) return lanes_text(n->dtype, lanes_of(n));
  const auto it = value_.find(n);
  WHIT_CHECK(it != value_.end(), "{} is used before its place in the list", n->op);
  if (lanes == lanes_of(n)) return it->second;
  WHIT_CHECK(lanes_of(n) == 0, "{} lanes used as {}", lanes_of(n), lanes);
  const auto have = spread_.find({n, lanes});
  return have != spread_.end() ? have->second : spread(n->dtype, lanes, it->second);
}

std::string Writer::base_of(const Node* storage) const {
  const char* stem = storage->op == Op::Param ? "data" : storage->op == Op::Reg ? "acc" : "scratch";
  return fmt::format("{}{}{}", prefix_, stem, storage->arg.int_at(0));
}

const TextRow& Writer::must_find_row(Op op, DType dt, const Node* n) const {
  const TextRow* row = find_row(rows_, op, dt, n);
  WHIT_CHECK(row && (class_of(dt) != kHalf || op == Op::Where), "{} of {} has no {} text", op, dt, language_);
  return *row;
}

// What is written at the entry, or where it is used.
constexpr OpSet kNoText{Op::Const, Op::Param, Op::Variable, Op::Lanes, Op::Reg, Op::Scratch, Op::Index, Op::After};

void Writer::node(const Node* n) {
  const auto source = [&] { return operand(n->src()[0], lanes_of(n->src()[0])); };
  switch (n->op) {
    case Op::Range:
    case Op::If: n->op == Op::If ? open_if(n) : open_loop(n); return open_.push_back(n);
    case Op::EndRange:
    case Op::EndIf:
      WHIT_CHECK(!open_.empty() && open_.back() == n->src()[0], "{} of what is not the innermost", n->op);
      close(open_.back());
      return open_.pop_back();
    case Op::Load: return load(n, access_of(n));
    case Op::Store: return store(n, access_of(n));
    case Op::Cast:
      for (const DType dt : {n->src()[0]->dtype, n->dtype})
        WHIT_CHECK(!is_float(dt) || dt >= DType::Float32 || dt == DType::Float16, "CAST of {} to {} has no {} text", n->src()[0]->dtype, n->dtype,
                   language_);
      return define(n, cast_text(n->src()[0]->dtype, n->dtype, lanes_of(n), operand(n->src()[0], lanes_of(n))));
    case Op::Bitcast: return bitcast(n);
    case Op::Vec: return define(n, is_splat(n) ? operand(n->src()[0], lanes_of(n)) : vec_text(n));
    case Op::Lane: return define(n, lane_text(n->dtype, lanes_of(n->src()[0]), source(), n->arg.as_int()));
    case Op::Fold: return fold(n);
    default:
      if (kNoText.has(n->op)) return;
      WHIT_CHECK(is_elementwise(n->op), "{} in a LINEAR", n->op);
      return arithmetic(n);
  }
}

void Writer::arithmetic(const Node* n) {
  const DType dt = operand_dtype(n);
  const bool scalar_condition = n->op == Op::Where && lanes_of(n->src()[0]) == 0;
  SmallVec<std::string, 3> operands;
  for (size_t i = 0; i < n->n_src; ++i) operands.push_back(operand(n->src()[i], scalar_condition && i == 0 ? 0 : lanes_of(n)));
  define(n, apply(must_find_row(n->op, dt, n), n->op, dt, lanes_of(n), operands, scalar_condition));
}

void Writer::fold(const Node* n) {
  const Op op = monoid_op(n->arg.as_str());
  const TextRow& row = must_find_row(op, n->dtype, nullptr);
  int64_t lanes = lanes_of(n->src()[0]);
  std::string v = operand(n->src()[0], lanes);
  WHIT_CHECK(std::has_single_bit(static_cast<uint64_t>(lanes)), "FOLD of {} lanes", lanes);
  for (; lanes > 1; lanes /= 2) {
    std::string halves[2];
    for (int64_t half = 0; half < 2; ++half) halves[half] = named(n->dtype, lanes / 2, half_text(n->dtype, lanes, v, half * lanes / 2));
    v = named(n->dtype, lanes / 2, apply(row, op, n->dtype, lanes / 2, halves, false));
  }
  define(n, lane_text(n->dtype, 1, v, 0));
}

}  // namespace whit::render
