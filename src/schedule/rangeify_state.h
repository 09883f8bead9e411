// The state of a rangeify run; see rangeify.h for how it works. Private to rangeify*.cpp.
#pragma once
#include <map>
#include <numeric>
#include <unordered_map>

#include "schedule/cost.h"
#include "schedule/index.h"
#include "schedule/rangeify.h"

namespace whit::sched {

// The loops that are open where a value is wanted: those of the nest, then of reduces from outside in.
struct Scope {
  int32_t parent;     // -1: the nest itself
  int64_t innermost;  // the reduce runs once for each value of the parent's ranges up to this id
  bool contraction, unwindow;
  SmallVec<UOp, 4> ranges{};
};

// A node wanted at an index.
struct Instance {
  int32_t node, nest, scope;
  int32_t next;            // of the same node
  uint32_t index;          // in the pool
  uint32_t first_src;      // in src_instances_
  UOp gate{};              // null: always
  SmallVec<UOp, 2> own{};  // REDUCE, UNWINDOW: its ranges; PAD, GATHER, UNWINDOW: then the condition of the value
  UOp value{};
};

struct OpenNest {
  int32_t node;  // what it computes
  int32_t instance = -1;
  int64_t n_iterations = 1;
  int64_t next_range = 0;
  int n_instances = 0, n_buffers = 0, n_reduces = 0, n_contractions = 0;  // reduces: without those of UNWINDOW
  int32_t scope = -1;
  bool has_stages = false;
  std::vector<UOp> ranges{};
  UOp store_index{}, inside{};  // with a halo: where the value goes, and where it is not zero
};

// Where the elements of a temporary lie. Row-major, unless: there are zeros around it, so that windows that reach over
// its edge need no gate; what windows of stride s read of an axis is kept together, in s phases, outside of all axes; or its
// axes are ordered as what it is computed from lies, so that it is one pass over memory.
struct Layout {
  Dims before, dims, phases;  // by axis; a multiple of its phases
  Dims order;                 // memory axis -> axis
  size_t n_joined = 1;        // so many of the last memory axes are one loop: a short one is no use for vectors

  explicit Layout(const Shape& s) : before(s.size(), 0), dims(s.begin(), s.end()), phases(s.size(), 1), order(s.size(), 0) {
    std::iota(order.begin(), order.end(), 0);
  }
  // Row-major place in memory; `at` is the index by axis, from the edge of the halo.
  UOp flat(std::span<const UOp> at) const {
    Index ordered, within;
    Dims sizes;
    for (const int64_t axis : order) {
      const size_t a = static_cast<size_t>(axis);
      UOp phase;
      div_mod_index(at[a], phases[a], within.emplace_back(), phase);
      if (phases[a] > 1) ordered.push_back(phase), sizes.push_back(phases[a]);
    }
    ordered.append(within.begin(), within.end());
    for (const int64_t a : order) sizes.push_back(dims[static_cast<size_t>(a)] / phases[static_cast<size_t>(a)]);
    return flatten(ordered, sizes);
  }
};

struct StateStore {
  int32_t nest, buffer, value_node;
  UOp index{}, gate{};
};

class Rangeify {
 public:
  Rangeify(const Graph& graph, const Forced& forced, const RangeifyLimits& limits, uint16_t default_device)
      : g_(graph), forced_(forced), limits_(limits), device_(graph.size()) {
    // A value that has no device is computed where it is wanted.
    for (size_t i = g_.size(); i-- > 0;) {
      if (const uint16_t own = node(static_cast<int32_t>(i))->device) device_[i] = own;
      if (device_[i] == 0) device_[i] = default_device;
      for (const int32_t s : g_.src_of(i))
        if (uint16_t& d = device_[s]; d == 0) d = device_[i];
    }
  }

  NestGraph run();

 private:
  const Node* node(int32_t i) const { return g_.nodes[static_cast<size_t>(i)]; }
  int32_t src(int32_t i, size_t k) const { return g_.src_of(static_cast<size_t>(i))[k]; }

  // ---- memory and instances (rangeify.cpp)

  int32_t add_buffer(VirtualBuffer::Kind kind, int32_t i, int32_t previous, int64_t n_elems, uint16_t device);
  int32_t materialise(int32_t i);

  static bool is_view(const Node* n) { return is_movement(n->op) && n->op != Op::Stack; }

  bool is_state(int32_t i) const { return node(i)->op == Op::Buffer || node(i)->op == Op::After; }

  int32_t memory_below(int32_t x) const;
  void find_memory();

  void find_structure();
  uint32_t intern(std::span<const UOp> index);

  struct InstanceKey {
    int32_t node, nest;
    uint32_t index;
    const Node* gate;
    bool operator==(const InstanceKey&) const = default;
  };
  struct InstanceKeyHash {
    size_t operator()(const InstanceKey& k) const {
      return hash_mix(hash_mix(static_cast<uint64_t>(static_cast<uint32_t>(k.node)) << 32 | static_cast<uint32_t>(k.nest), k.index),
                      reinterpret_cast<uintptr_t>(k.gate));
    }
  };

  int32_t want(int32_t i, int32_t nest, int32_t scope, std::span<const UOp> index, const UOp& gate);
  int32_t add_instance(int32_t i, int32_t nest, int32_t scope, uint32_t index, const UOp& gate);
  std::span<const UOp> index_of(const Instance& in) const { return index_pool_[in.index]; }

  int32_t add_scope(int32_t parent, int64_t innermost, bool contraction, bool unwindow);
  int32_t open_nest(int32_t i, const Shape& shape, Index& index, const Layout* layout = nullptr);
  UOp open_loop(int32_t nest, int64_t size, AxisType type);

  int64_t innermost_of(const Instance& in) const;
  int64_t evaluations(const Instance& in) const;

  // ---- decisions (rangeify_decide.cpp)

  struct Demand {
    double evaluations = 0;
    int n_instances = 0;
    bool one_nest = true;
    const Instance* first = nullptr;
  };
  Demand demand_of(int32_t i) const;
  bool should_materialise(int32_t i);

  bool is_unwindowed_contraction(int32_t i) const;
  bool should_materialise_reduce(int32_t i, const Demand& d, double n_elems);

  // ---- values that stay within a nest (rangeify_stage.cpp)

  enum class Keep : uint8_t {
    Any,
    Stage,   // scores: computed in each nest that wants them, into a STAGE
    Inline,  // scores that cost little
    Row,     // a sum or maximum of scores
    OfRow    // elementwise over those
  };
  std::vector<int32_t> scores_around(int32_t exponential, const std::vector<std::vector<int32_t>>& users) const;
  void find_scores();
  bool is_spread_constant(int32_t i) const;
  bool follows_loops(int32_t i, int32_t nest) const;
  bool keep_in_nest(int32_t i);
  bool stage(int32_t i);
  bool computed_in(int32_t i, int32_t nest) const {
    const auto it = row_nest_.find(i);
    return it == row_nest_.end() || it->second == nest;
  }
  UOp read_stage(const Instance& in, const Instance& own) const;
  void store_rows();

  // ---- backward: what sources are wanted at (rangeify_expand.cpp)

  void visit(int32_t i);
  const Layout* find_layout(int32_t i);
  bool add_halo(int32_t i, Layout& l) const;

  bool follow_source(int32_t i, Layout& l) const;
  void count_loads(int32_t i);

  void copy_state(int32_t i);

  // The element of the memory below a chain of views.
  struct Place {
    int32_t base;
    Index index{};
    UOp gate{};
  };
  Place place_of(int32_t view, int32_t base, std::span<const UOp> index) const;
  void store_whole(int32_t i, int32_t buffer);
  void visit_after(int32_t i);

  void visit_scatter(int32_t i);
  UOp loaded_index(int32_t instance, DType dtype);

  UOp flat_index(int32_t i, std::span<const UOp> index) const;
  int32_t materialised_relu(int32_t i) const;

  UOp fresh_range(int32_t nest, int64_t size);
  void expand(int32_t k);

  template <class Ask> void expand_bitcast(const Node* n, const Instance& in, const Index& at, SmallVec<UOp, 2>& own, const Ask& ask);

  // ---- forward: expressions and nests (rangeify_value.cpp)

  UOp source_value(const Instance& in, size_t s) const;
  UOp load_from(int32_t buffer, const UOp& flat, const UOp& gate) const;

  UOp stored_constant(int32_t i) const;
  UOp loaded(const Instance& in, int32_t buffer);
  bool is_zero_outside(const Node* x, const UOp& inside) const;
  bool is_halo_load(const Node* x, const UOp& inside) const;
  UOp zero_outside(const UOp& x, const UOp& inside) const;

  UOp value_of(const Instance& in);

  UOp bitcast_value(const Node* n, const Instance& in) const;
  Nest& made_nest(int32_t id) { return out_.nests[nests_.size() - 1 - static_cast<size_t>(id)]; }
  void emit();

  void replace_stand_ins();
  void describe(Nest& nest);

  static constexpr int32_t kCopyNest = -2, kFewInstances = 6, kManyInstances = 8;
  static constexpr int64_t kMaxHalo = 3;  // times the elements
  static constexpr int64_t kShortLoop = 16;

  const Graph& g_;
  const Forced& forced_;
  const RangeifyLimits& limits_;
  Numbered<uint16_t> device_;  // by node
  NestGraph out_{};
  Numbered<char> in_memory_{};
  std::vector<Cost> costs_{};
  Numbered<int32_t> first_instance_{}, own_nest_{};
  Numbered<Instance> instances_{};
  std::vector<int32_t> src_instances_{};
  Numbered<OpenNest> nests_{};
  Numbered<Scope> scopes_{};
  std::vector<StateStore> state_stores_{};
  std::vector<int32_t> scatter_adds_{}, has_stand_ins_{};
  std::unordered_map<int32_t, int32_t> copies_{};
  Numbered<char> is_product_{};                     // by node: what a contraction sums, larger than all it is made of
  Numbered<char> over_contraction_{};               // by node: elementwise over one that nobody else uses
  std::unordered_map<int32_t, int32_t> relu_of_{};  // condition -> WHERE
  Numbered<Keep> keep_{};
  std::unordered_map<int32_t, int32_t> staged_{};  // instance -> the one that fills its STAGE
  std::map<int32_t, int32_t> row_nest_{};          // node -> the nest that stores it beside its result
  std::unordered_map<int32_t, Layout> layouts_{};
  std::unordered_map<const Node*, UOp> zero_where_not_{};  // loads from halos
  std::vector<Index> index_pool_{};
  std::unordered_map<uint64_t, SmallVec<uint32_t, 1>> index_ids_{};
  std::unordered_map<InstanceKey, int32_t, InstanceKeyHash> instance_ids_{};
};

}  // namespace whit::sched
