#include "engine/storage.h"

#include <vector>

#include "ir/build.h"
#include "rules/gradient.h"

namespace whit {

UOp storage_param(DType dtype, int64_t n_elems) {
  const int64_t dims[] = {n_elems};
  return param(0, dtype, dims);
}

namespace {

// Rebuilds the linear chain over another base; `drop_detach` gives a chain that a store can write through.
UOp rebuild(const UOp& chain, const UOp& base, bool drop_detach) {
  std::vector<const Node*> links;
  for (const Node* n = chain.node(); n->op != Op::Param; n = n->src_begin()[0]) links.push_back(n);
  UOp out = base;
  for (size_t i = links.size(); i-- > 0;) {
    if (drop_detach && links[i]->op == Op::Detach) continue;
    out = with_first_src(links[i], out);
  }
  return out;
}

}  // namespace

UOp apply_chain(const UOp& chain, const UOp& state) { return rebuild(chain, state, false); }

int64_t shown_elems(const UOp& chain) {
  int64_t n = chain.shape().numel();
  for (const Node* k = chain.node(); k->op != Op::Param; k = k->src_begin()[0])
    if (k->op == Op::Unshard) n /= k->arg.int_at(1);
  return n;
}

void Storage::settle_recorded() const {
  UOp base = realized(state_);
  while (base && base.op() == Op::Reshape) base = base.src(0);
  if (base && base.op() == Op::Buffer && base.shape() == state_.shape()) state_ = std::move(base);
}

void Storage::store(const UOp& chain, const UOp& value) {
  state();
  for (const Node* n = chain.node(); n->op != Op::Param; n = n->src_begin()[0])
    WHIT_USER(n->op != Op::Expand, Runtime, "[assign] the target repeats elements (it was expanded to {}); clone it first", n->shape);
  bool strided = false, cut = false;
  UOp base = chain;
  for (; base.op() != Op::Param; base = base.src(0)) {
    strided |= base.op() == Op::Window;
    cut |= base.op() == Op::Unshard;
  }
  if (strided || cut) {
    // No part of the memory that movement ops alone could name: all of it is written, old values where they stay.
    const auto transposed = [&](const UOp& x) { return transpose_chain(chain, base, on_each(x, state_->device)); };
    const UOp placed = transposed(value), mask = transposed(broadcast_scalar(const_bool(true), chain.shape()));
    const bool is_all = !strided && !chain.shape().is_symbolic() && shown_elems(chain) == state_.shape().numel();
    const UOp all = is_all ? placed : where(mask, placed, state_);
    state_ = UOp::make(Op::After, state_.dtype(), {state_, UOp::make(Op::Store, DType::Void, {state_, all})});
    ++version_;
    return;
  }
  const UOp view = rebuild(chain, state_, true);
  state_ = UOp::make(Op::After, state_.dtype(), {state_, UOp::make(Op::Store, DType::Void, {view, value})});
  ++version_;
}

}  // namespace whit
