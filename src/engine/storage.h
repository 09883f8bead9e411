// Storage: memory that tensors share. Its state is a flat value (shape (n)): the BUFFER, or AFTERs of it once stores are
// pending. Assigning replaces the state in O(1); every view reads through the storage, so all of them see it.
//
// A view is a chain of movement ops over a PARAM of shape (n) that stands for the state. The state itself is never kept
// in a view: the engine counts references to old states to know whether a store may run in place.
#pragma once
#include "base/generation.h"
#include "ir/uop.h"

namespace whit {

class Storage {
 public:
  explicit Storage(UOp state) { settle(std::move(state)); }
  /// A state that the engine has computed meanwhile, for somebody else, is the memory that it lies in.
  const UOp& state() const {
    if (state_.op() == Op::After) settle_recorded();
    return state_;
  }
  /// After the engine ran: the same value, in memory.
  void settle(UOp state) {
    state_ = std::move(state);
    if (state_.op() != Op::Buffer) next_generation();
  }
  /// Records the store of `value` into the part of the memory that `chain` shows.
  /// errors: Runtime when the chain repeats or invents elements, so that it is no memory
  void store(const UOp& chain, const UOp& value);

 private:
  void settle_recorded() const;
  mutable UOp state_;
};

/// The PARAM that stands for a state of `n_elems` elements.
UOp storage_param(DType dtype, int64_t n_elems);
/// How many elements of a state a view shows, on each device.
int64_t shown_elems(const UOp& chain);
/// `chain` with its PARAM replaced by `state`.
UOp apply_chain(const UOp& chain, const UOp& state);

}  // namespace whit
