// UOp: the node of every graph in whit, from Tensor to machine code.
//
// How it works. A UOp is an 8-byte handle that owns one atomic reference of an immutable Node. Nodes are hash-consed:
// make() returns the live node with the same (op, dtype, sources, arg) if there is one, so structural equality is
// pointer equality. The intern table is sharded; a look-up revives only nodes whose count is not zero yet. Shape,
// bounds, ranges and device are computed when a node is made, from its sources, so no query ever walks a graph. The
// structural key is computed on first use, iteratively.
//
// Requirements: (1) no recursion over graph depth, in make, destruction and every walk; (2) a Node never changes after
// make(), but for the engine's side data (`extra`); (3) canonical orders use keys, never addresses.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/ptr_map.h"
#include "ir/arg.h"
#include "ir/dtype.h"
#include "ir/op.h"

namespace whit {

class UOp;
struct Node;

/// Sorted list of the open RANGE nodes that a node depends on; shared between nodes. Null when there are none.
struct RangeSet {
  mutable std::atomic<uint32_t> refs{1};
  SmallVec<const Node*, 6> nodes;  ///< ascending by (id, address); the RANGEs live as long as the node that has the set
};

/// Side data of the engine, outside identity: what a BUFFER stands for, and where a computed node is stored.
struct NodeExtra {
  std::shared_ptr<void> payload;  ///< of a BUFFER: its runtime::Buffer
  std::atomic<void*> payload_address{nullptr};
  const Node* realized = nullptr;  ///< owning: the view or BUFFER that holds this node's value
};

/// What a look-up reads comes last, so that it shares a cache line with the first three sources, which follow the node.
struct Node {
  Shape shape;
  int64_t vmin;  ///< of ints and bools: inclusive bounds, saturated to int64; of other dtypes INT64_MIN, INT64_MAX
  int64_t vmax;
  const RangeSet* range_set;
  mutable std::atomic<const Key128*> key_cache;
  mutable std::atomic<NodeExtra*> extra;
  uint64_t hash;
  Arg arg;
  mutable std::atomic<uint32_t> refs;
  Op op;
  DType dtype;
  uint16_t device;  ///< id of an interned device name, 0 = none (see device_name)
  uint32_t n_src;
  const Node** src_begin() const { return reinterpret_cast<const Node**>(const_cast<Node*>(this) + 1); }
  std::span<const Node* const> src() const { return {src_begin(), n_src}; }
};

namespace detail {
void destroy_node(const Node* n);  // called when a count reached zero
}

class UOp {
 public:
  UOp() = default;
  UOp(std::nullptr_t) {}
  /// Takes a new reference of a node that is kept alive by somebody else.
  explicit UOp(const Node* n) : n_(n) {
    if (n_) n_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  UOp(const UOp& o) : UOp(o.n_) {}
  UOp(UOp&& o) noexcept : n_(std::exchange(o.n_, nullptr)) {}
  UOp& operator=(const UOp& o) {
    UOp copy(o);
    std::swap(n_, copy.n_);
    return *this;
  }
  UOp& operator=(UOp&& o) noexcept {
    std::swap(n_, o.n_);
    return *this;
  }
  ~UOp() {
    if (n_ && n_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) detail::destroy_node(n_);
  }
  /// Takes over a reference that the caller owns already.
  static UOp adopt(const Node* n) {
    UOp u;
    u.n_ = n;
    return u;
  }
  /// Gives the reference up to the caller.
  const Node* release() && { return std::exchange(n_, nullptr); }

  /// The one way to make a node. n_src is checked against ops.def; the shape rule may raise an internal error.
  static UOp make(Op op, DType dtype, std::span<const UOp> src, Arg arg = {});
  static UOp make(Op op, DType dtype, std::initializer_list<UOp> src = {}, Arg arg = {}) {
    return make(op, dtype, std::span<const UOp>(src.begin(), src.size()), std::move(arg));
  }

  explicit operator bool() const { return n_ != nullptr; }
  bool operator==(const UOp& o) const { return n_ == o.n_; }
  const Node* node() const { return n_; }
  const Node* operator->() const { return n_; }

  Op op() const { return n_->op; }
  DType dtype() const { return n_->dtype; }
  const Arg& arg() const { return n_->arg; }
  const Shape& shape() const { return n_->shape; }
  int64_t vmin() const { return n_->vmin; }
  int64_t vmax() const { return n_->vmax; }
  size_t n_src() const { return n_->n_src; }
  UOp src(size_t i) const { return UOp(n_->src_begin()[i]); }
  std::vector<UOp> srcs() const;
  /// The open ranges it depends on, ascending by id.
  std::span<const Node* const> ranges() const {
    return n_->range_set ? std::span<const Node* const>(n_->range_set->nodes) : std::span<const Node* const>();
  }
  bool depends_on(const UOp& range) const;
  /// 128-bit structural key; BUFFER ids do not enter it.
  const Key128& key() const;
  bool is_const() const { return n_->op == Op::Const; }
  /// The same node with other sources (itself when nothing changed).
  UOp with_src(std::span<const UOp> src) const;

 private:
  const Node* n_ = nullptr;
};

/// A size or a place on an axis: a number, or a scalar expression of the index type over VARIABLEs.
class Sint {
 public:
  Sint(int v) : max_(v) {}
  Sint(int64_t v) : max_(v) {}
  /// errors: Type for another dtype than the index type
  Sint(const UOp& expression);
  bool is_symbolic() const { return static_cast<bool>(symbol_); }
  int64_t min() const { return symbol_ ? symbol_.vmin() : max_; }
  /// The number, or the most that the expression can be.
  int64_t max() const { return max_; }
  /// errors: Value when it is an expression
  int64_t number() const;
  UOp uop() const;
  bool operator==(const Sint&) const = default;
  std::string str() const;

 private:
  int64_t max_;
  UOp symbol_{};
};
using Sints = SmallVec<Sint, 4>;
/// The size of an axis, and all sizes.
inline Sint size_of(const Shape& s, size_t axis) { return s.symbol(axis) ? Sint(UOp(s.symbol(axis))) : Sint(s[axis]); }
Sints sizes_of(const Shape& s);

using NodeList = std::vector<const Node*>;

/// The nodes below `roots`, sources before users, each once. `sources(n)` is the first source of n that is visited and the
/// one after the last, as a pair of uint32_t.
template <class Sources> NodeList post_order(std::span<const UOp> roots, Sources&& sources) {
  struct Visit {
    const Node* node;
    uint32_t next, end;
  };
  NodeList order;
  PtrMap<Node, bool> seen;
  std::vector<Visit> stack;
  const auto push = [&](const Node* n) {
    if (std::exchange(seen[n], true)) return;
    const auto [first, end] = sources(n);
    stack.push_back({n, first, end});
  };
  for (const UOp& root : roots) {
    push(root.node());
    while (!stack.empty()) {
      Visit& v = stack.back();
      if (v.next < v.end) {
        push(v.node->src_begin()[v.next++]);
      } else {
        order.push_back(v.node);
        stack.pop_back();
      }
    }
  }
  return order;
}
/// All nodes that `roots` depend on, sources before users, each once. `enter` (optional) decides whether the sources of
/// a node are visited; CALL bodies are entered like other sources.
NodeList toposort(std::span<const UOp> roots, bool (*enter)(const Node*) = nullptr);
NodeList toposort(const UOp& root, bool (*enter)(const Node*) = nullptr);
/// The same without the bodies of CALLs.
NodeList toposort_outside_calls(std::span<const UOp> roots);

/// n with another first source.
UOp with_first_src(const Node* n, const UOp& x);
/// The chain of first sources from `chain` down to `from`, over `to` instead; without DETACHs when they are to be dropped.
UOp rebuilt_chain(const UOp& chain, const UOp& from, const UOp& to, bool drop_detach = false);

/// Replaces nodes by others, everywhere below `root`, once (replacements are not entered again).
UOp substitute(const UOp& root, const std::unordered_map<const Node*, UOp>& map);

/// Number of nodes alive in the process.
int64_t live_nodes();

/// Interned device names; 0 is "no device".
uint16_t device_id(std::string_view name);
std::string_view device_name(uint16_t id);

/// True for a name that joins those of several devices by commas: a value there is one on each of them.
inline bool is_multi(uint16_t device) { return device >> 15; }
/// The devices of such a name; of another one, itself.
std::vector<uint16_t> devices_of(uint16_t device);

/// Side data. set_payload is for fresh BUFFERs; set_realized replaces what was there.
std::shared_ptr<void> payload(const UOp& buffer);
void set_payload(const UOp& buffer, std::shared_ptr<void> p);
inline void* payload_address(const UOp& buffer) {  ///< takes no lock; null when there is none
  const NodeExtra* e = buffer->extra.load(std::memory_order_acquire);
  return e ? e->payload_address.load(std::memory_order_acquire) : nullptr;
}
UOp realized(const UOp& u);
bool is_realized(const Node* n);  ///< a node other than a BUFFER whose value lies somewhere
void set_realized(const UOp& u, UOp where);

namespace detail {
// ir/shape.cpp and ir/bounds.cpp
/// What RESHAPE makes of sizes: a symbolic axis stays an axis of its own, with as many elements before and after it. None
/// where it would be joined or split.
std::optional<Shape> reshaped_sizes(const Shape& in, std::span<const int64_t> dims);
Shape infer_shape(Op op, DType dtype, std::span<const UOp> src, const Arg& arg);
void infer_bounds(Op op, DType dtype, std::span<const UOp> src, const Arg& arg, int64_t* vmin, int64_t* vmax);
}  // namespace detail

}  // namespace whit
