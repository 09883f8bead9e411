#include "rewrite/pattern.h"

#include <fmt/core.h>

#include <cstring>

namespace whit::pat {
namespace {

constexpr const char* kSlotNames[kNumSlots] = {"x", "y", "z", "u", "v", "w",  "i",  "j",  "k",  "n",  "m",  "f",
                                               "g", "h", "p", "q", "r", "c0", "c1", "c2", "c3", "d0", "d1", "d2"};

std::string ops_text(const OpSet& ops) {
  std::string t;
  int count = 0;
  for (int o = 0; o < kNumOps; ++o) {
    if (!ops.has_bit(static_cast<unsigned>(o))) continue;
    if (++count > 4) return t + "|..";
    if (count > 1) t += "|";
    t += name(static_cast<Op>(o));
  }
  return t;
}

const PatNode* print(const PatNode* a, std::string& out) {
  switch (a->kind) {
    case PatKind::Any:
    case PatKind::Const:
    case PatKind::AnyConst:
      out += a->slot == kNoSlot ? "_" : slot_name(a->slot);
      return a + 1;
    case PatKind::IntLit:
      out += fmt::format("{}", a->imm);
      return a + 1;
    case PatKind::FloatLit: {
      double value;
      std::memcpy(&value, &a->imm, sizeof value);
      out += fmt::format("{}", value);
      return a + 1;
    }
    case PatKind::Node:
      break;
  }
  if (a->has(PatNode::kComm)) out += "comm ";
  if (a->has(PatNode::kMaybeCast)) out += "maybe_cast ";
  if (a->has(PatNode::kFold)) out += "fold ";
  if (a->slot != kNoSlot) out += fmt::format("{}=", slot_name(a->slot));
  out += ops_text(a->ops);
  if (a->has(PatNode::kAll)) out += " all";
  out += "(";
  const PatNode* next = a + 1;
  for (unsigned s = 0; s < a->n_src; ++s) {
    if (s) out += ", ";
    next = print(next, out);
  }
  if (a->has(PatNode::kRest)) out += a->n_src ? ", .." : "..";
  out += ")";
  return next;
}

}  // namespace

const char* slot_name(uint8_t slot) { return slot < kNumSlots ? kSlotNames[slot] : "_"; }

const PatNode* skip(const PatNode* a) {
  const PatNode* next = a + 1;
  for (unsigned left = a->kind == PatKind::Node ? a->n_src : 0; left > 0; --left) next = skip(next);
  return next;
}

void pattern_error(const char* what) { raise(ErrorKind::Internal, fmt::format("[rewrite] {}", what)); }

std::string to_string(const Pat& a) {
  std::string out;
  if (a.len) print(a.node, out);
  return out;
}

}  // namespace whit::pat
