#include "engine/storage.h"

#include "ir/build.h"
#include "rules/gradient.h"

namespace whit {

UOp storage_param(DType dtype, int64_t n_elems) {
  const int64_t dims[] = {n_elems};
  return param(0, dtype, dims);
}

UOp apply_chain(const UOp& chain, const UOp& state) {
  UOp base = chain;
  while (base.op() != Op::Param) base = base.src(0);
  return rebuilt_chain(chain, base, state);
}

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
  bool strided = false, cut = false;
  UOp base = chain;
  for (; base.op() != Op::Param; base = base.src(0)) {
    WHIT_USER(base.op() != Op::Expand, Runtime, "[assign] the target repeats elements (it was expanded to {}); clone it first", base.shape());
    strided |= base.op() == Op::Window;
    cut |= base.op() == Op::Unshard;
  }
  UOp target, stored = value;
  if (strided || cut) {
    // No part of the memory that movement ops alone could name: all of it is written, old values where they stay.
    const auto transposed = [&](const UOp& x) { return transpose_chain(chain, base, on_each(x, state_->device)); };
    const UOp placed = transposed(value), mask = transposed(broadcast_scalar(const_bool(true), chain.shape()));
    const bool is_all = !strided && !chain.shape().is_symbolic() && shown_elems(chain) == state_.shape().numel();
    stored = is_all ? placed : where(mask, placed, state_);
    target = state_;
  } else {
    target = rebuilt_chain(chain, base, state_, true);
  }
  settle(UOp::make(Op::After, state_.dtype(), {state_, UOp::make(Op::Store, DType::Void, {target, stored})}));
}

}  // namespace whit
