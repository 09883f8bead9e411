// Stores in place against readers of the old state.
//
// A pending AFTER(b, STORE(view, v)) overwrites b's memory. Inside of the graph that is realised, the schedule orders
// readers before the store. Readers outside of it are found by counting: a node has as many references from outside as it
// has references in all minus those from nodes of the graph. Two cases:
//  (a) a node of the graph that depends on an old state has references from outside: it becomes another root, so it is
//      computed before the store and recorded;
//  (b) b itself, a view of it, or a node whose recorded value lies in b, has: the old content moves to fresh memory. The
//      node b stands for that from now on, and a new BUFFER node over the old memory takes its place in this graph. So
//      old readers keep the old value, and the storage keeps its address, which a captured graph relies on.
#pragma once
#include <span>
#include <vector>

#include "ir/uop.h"
#include "runtime/buffer.h"

namespace whit::engine {

struct StorePlan {
  /// Nodes beyond the roots whose values must be computed, by case (a).
  std::vector<UOp> extra_roots{};
  /// BUFFERs whose old content must be kept, by case (b).
  std::vector<UOp> kept{};
  /// The last state of each stored buffer: AFTER nodes that will live in memory when the graph has run.
  std::vector<UOp> states{};
  /// States of the graph that a later store of the graph ends.
  std::vector<UOp> ended{};
  /// Data moves between devices somewhere, or is on several.
  bool is_moved = false;
  bool has_bind = false;  ///< sizes with values for this run
  /// A CALL that is computed by itself, as it is precompiled: its GETTUPLEs that are not roots, the first such call's.
  std::vector<UOp> alone{};
};

/// Looks at references, so the caller must not hold handles of nodes below `roots`.
StorePlan plan_stores(std::span<const UOp> roots);

/// Does case (b) for one BUFFER: copies its memory and gives the old memory to a fresh node.
struct KeptCopy {
  UOp node{};
  BufferPtr from{}, to{};
};
/// Returns the BUFFER over the memory that is about to be overwritten; the copies to make, one a device, are added.
UOp keep_old_content(const UOp& buffer_node, std::vector<KeptCopy>& copies);

}  // namespace whit::engine
