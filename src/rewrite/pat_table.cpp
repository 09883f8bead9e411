#include "rewrite/pat_table.h"

namespace whit {
namespace {

using pat::PatKind;
using pat::PatNode;

bool is_plain_const(const Node* n) { return n->op == Op::Const && !n->arg.is_invalid(); }

// Matches the tree at `a` and returns the pattern after it, or null. `bound` has a bit for each slot that is set.
const PatNode* run(const PatNode* a, const Node* n, Match& m, uint32_t& bound) {
  if ((a->dtypes >> static_cast<unsigned>(n->dtype) & 1) == 0) return nullptr;
  switch (a->kind) {
    case PatKind::Any: break;
    case PatKind::Const:
    case PatKind::AnyConst:
      if (!is_plain_const(n)) return nullptr;
      break;
    case PatKind::IntLit: return is_plain_const(n) && n->arg.to_int() == a->imm ? a + 1 : nullptr;
    case PatKind::FloatLit: return is_plain_const(n) && __builtin_bit_cast(int64_t, n->arg.to_double()) == a->imm ? a + 1 : nullptr;
    case PatKind::Node:
      if (!a->ops.has(n->op)) return nullptr;
      break;
  }
  if (a->slot != pat::kNoSlot) {
    const uint32_t b = uint32_t{1} << a->slot;
    if (bound & b) {
      if (m.slot[a->slot] != n) return nullptr;
    } else {
      bound |= b;
      m.slot[a->slot] = n;
    }
  }
  if (a->kind != PatKind::Node) return a + 1;
  if (a->has(PatNode::kAll)) {
    for (const Node* s : n->src())
      if (!run(a + 1, s, m, bound)) return nullptr;
    return skip(a);
  }
  if (a->has(PatNode::kRest) ? n->n_src < a->n_src : n->n_src != a->n_src) return nullptr;
  const PatNode* next = a + 1;
  const Node** src = n->src_begin();
  for (unsigned s = 0; s < a->n_src; ++s)
    if (!(next = run(next, src[s], m, bound))) return nullptr;
  return next;
}

OpSet ops_of(const PatNode& a) {
  switch (a.kind) {
    case PatKind::Any: return OpSet::any();
    case PatKind::Node: return a.ops;
    default: return Op::Const;
  }
}

void append(Pat& to, const PatNode* first, const PatNode* last) {
  for (; first != last; ++first) to.node[to.len++] = *first;
}

// The pattern with the operands of its node number `at` swapped.
Pat swapped(const Pat& a, unsigned at) {
  Pat r;
  const PatNode* const first = a.node + at + 1;
  const PatNode* const second = skip(first);
  const PatNode* const end = skip(second);
  append(r, a.node, first);
  append(r, second, end);
  append(r, first, second);
  append(r, end, a.node + a.len);
  return r;
}

// A constant left of something else, under an op whose builder puts constants right.
bool has_constant_left(const Pat& a) {
  for (unsigned s = 0; s < a.len; ++s) {
    const PatNode& t = a.node[s];
    if (t.kind != PatKind::Node || t.n_src != 2 || !kCommutative.covers(t.ops)) continue;
    auto is_const = [](const PatNode& c) { return ops_of(c) == OpSet(Op::Const); };
    if (is_const(a.node[s + 1]) && !is_const(*skip(a.node + s + 1))) return true;
  }
  return false;
}

// Walks a and b together; `of_a` maps slots of a to the place in b that they stand for.
bool covers(const PatNode* a, const PatNode* b, const PatNode** of_a) {
  if ((b->dtypes & ~a->dtypes) != 0) return false;
  if (a->slot != pat::kNoSlot) {
    const PatNode*& seen = of_a[a->slot];
    if (!seen) {
      seen = b;
    } else if (seen != b && (seen->slot == pat::kNoSlot || seen->slot != b->slot)) {
      return false;  // b does not promise that both are the same node
    }
  }
  switch (a->kind) {
    case PatKind::Any: return true;
    case PatKind::Const:
    case PatKind::AnyConst: return b->kind == PatKind::IntLit || b->kind == PatKind::FloatLit || b->kind == PatKind::Const || b->kind == a->kind;
    case PatKind::IntLit:
    case PatKind::FloatLit: return b->kind == a->kind && b->imm == a->imm;
    case PatKind::Node: break;
  }
  if (b->kind != PatKind::Node || !a->ops.covers(b->ops) || a->has(PatNode::kAll) || b->has(PatNode::kAll)) return false;
  if (a->has(PatNode::kRest) ? b->n_src < a->n_src : (b->n_src != a->n_src || b->has(PatNode::kRest))) return false;
  const PatNode *next_a = a + 1, *next_b = b + 1;
  for (unsigned s = 0; s < a->n_src; ++s) {
    if (!covers(next_a, next_b, of_a)) return false;
    next_a = skip(next_a);
    next_b = skip(next_b);
  }
  return true;
}

}  // namespace

std::vector<Pat> expand_variants(const Pat& a) {
  std::vector<Pat> done, work{a};
  while (!work.empty()) {
    Pat t = work.back();
    work.pop_back();
    unsigned at = 0;
    while (at < t.len && !t.node[at].has(PatNode::kComm)) ++at;
    if (at == t.len) {
      done.push_back(t);
      if (done.size() > 4) pat::pattern_error("a pattern stands for more than 4 variants");
      continue;
    }
    t.node[at].flags &= static_cast<uint8_t>(~PatNode::kComm);
    if (t.node[at].n_src != 2) pat::pattern_error("comm() is for ops of two sources");
    work.push_back(swapped(t, at));
    work.push_back(t);
  }
  return done;
}

bool subsumes(const Pat& a, const Pat& b) {
  const PatNode* of_a[pat::kNumSlots] = {};
  return covers(a.node, b.node, of_a);
}

void PatTable::add(const char* table, const Row& row, bool raw_order) {
  try {
    const auto variants = expand_variants(row.lhs);
    // A variant that no builder makes is dropped, unless it is the only one.
    size_t n_kept = 0;
    for (const Pat& t : variants) {
      if (!raw_order && has_constant_left(t)) continue;
      ++n_kept;
      const PatNode& root = t.node[0];
      Entry e{root.ops, OpSet::any(), OpSet::any(), root.dtypes, static_cast<uint32_t>(rows_.size()), static_cast<uint32_t>(code_.size())};
      OpSet absent;
      absent.add_bit(kNoSrcBit);
      if (root.has(PatNode::kAll)) {
        e.src0 = e.src1 = ops_of(t.node[1]) | absent;
      } else {
        const OpSet beyond = root.has(PatNode::kRest) ? OpSet::any() : absent;
        e.src0 = root.n_src > 0 ? ops_of(t.node[1]) : beyond;
        e.src1 = root.n_src > 1 ? ops_of(*skip(t.node + 1)) : beyond;
      }
      code_.insert(code_.end(), t.node, t.node + t.len);
      entries_.push_back(e);
    }
    if (n_kept == 0) pat::pattern_error("a constant stands left of a commutative op: builders put it right");
  } catch (const Error& e) {
    raise(ErrorKind::Internal, "{} (rule {}/{} at {}:{})", e.what(), table, row.name, row.file, row.line);
  }
  rows_.push_back(&row);
}

const PatTable::ShortList& PatTable::short_list(uint32_t key) const {
  std::lock_guard lock(mutex_);
  auto& list = lists_[key];
  if (!list) {
    list = std::make_unique<ShortList>();
    list->key = key;
    const unsigned op = key >> 24, op0 = key >> 16 & 255, op1 = key >> 8 & 255, dtype = key & 255;
    for (uint32_t e = 0; e < entries_.size(); ++e)
      if (entries_[e].ops.has_bit(op) && entries_[e].src0.has_bit(op0) && entries_[e].src1.has_bit(op1) && (entries_[e].dtypes >> dtype & 1))
        list->entries.push_back(e);
  }
  return *list;
}

PatTable::Cursor PatTable::candidates(const Node* n) const {
  const uint32_t op0 = n->n_src > 0 ? static_cast<uint32_t>(n->src_begin()[0]->op) : kNoSrcBit;
  const uint32_t op1 = n->n_src > 1 ? static_cast<uint32_t>(n->src_begin()[1]->op) : kNoSrcBit;
  const uint32_t key = static_cast<uint32_t>(n->op) << 24 | op0 << 16 | op1 << 8 | static_cast<uint32_t>(n->dtype);
  auto& slot = cache_[(key * 0x9E3779B1u) >> 23];
  const ShortList* list = slot.load(std::memory_order_acquire);
  if (!list || list->key != key) {
    list = &short_list(key);
    slot.store(list, std::memory_order_release);
  }
  return {list->entries.data(), list->entries.data() + list->entries.size()};
}

bool PatTable::next(Cursor& c, const Node* n, Match& m, uint32_t* index) const {
  while (c.at != c.end) {
    const Entry& e = entries_[*c.at++];
    uint32_t bound = 0;
    if (!run(code_.data() + e.code, n, m, bound)) continue;
    m.root = n;
    m.row = rows_[e.row];
    *index = e.row;
    return true;
  }
  return false;
}

}  // namespace whit
