#include "ir/uop.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "base/block_pool.h"
#include "base/immortal.h"
#include "base/text.h"
#include "ir/remake.h"
#include "ir/text.h"

namespace whit {
namespace {

// ---- intern table: sharded, open addressing with linear probing, a spin lock a shard
class SpinLock {
 public:
  void lock() {
    // The holder may have lost its core: then waiting must give it one.
    for (int spins = 0; flag_.exchange(true, std::memory_order_acquire); ++spins)
      while (flag_.load(std::memory_order_relaxed))
        if (++spins < 100) pause();
        else std::this_thread::yield();
  }
  void unlock() { flag_.store(false, std::memory_order_release); }

 private:
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  std::atomic<bool> flag_{false};
};

// The hash beside the pointer: probing, growing and closing a gap touch no node.
struct Slot {
  uint64_t hash = 0;
  const Node* node = nullptr;
};

struct alignas(64) Shard {
  SpinLock lock;
  std::vector<Slot> slots = std::vector<Slot>(64);
  size_t n_live = 0;

  size_t mask() const { return slots.size() - 1; }

  void insert(uint64_t hash, const Node* n) {
    if (++n_live * 4 > slots.size() * 3) {
      std::vector<Slot> old(slots.size() * 2);
      old.swap(slots);
      for (const Slot& s : old)
        if (s.node) place(s);
    }
    place({hash, n});
  }

  void erase(const Node* n) {
    size_t i = n->hash & mask();
    for (; slots[i].node != n; i = (i + 1) & mask())
      if (!slots[i].node) return;  // never was in the table
    --n_live;
    // Entries behind the gap move into it, unless they would then stand before their place.
    for (size_t j = i;;) {
      j = (j + 1) & mask();
      if (!slots[j].node) break;
      const size_t home = slots[j].hash & mask();
      if (((j - home) & mask()) < ((j - i) & mask())) continue;
      slots[i] = slots[j];
      i = j;
    }
    slots[i] = {};
  }

 private:
  void place(const Slot& s) {
    size_t i = s.hash & mask();
    while (slots[i].node) i = (i + 1) & mask();
    slots[i] = s;
  }
};
constexpr int kShardBits = 6;

struct Table {
  Shard shards[1 << kShardBits];
  Shard& of(uint64_t hash) { return shards[hash >> (64 - kShardBits)]; }
};
Table& table() {
  return immortal<Table>();  // nodes may outlive static destruction
}

bool same_node(const Node* n, Op op, DType dtype, std::span<const UOp> src, const Arg& arg) {
  if (n->op != op || n->dtype != dtype || n->n_src != src.size()) return false;
  const Node** have = n->src_begin();
  for (size_t i = 0; i < src.size(); ++i)
    if (have[i] != src[i].node()) return false;
  return n->arg == arg;
}

// An owning reference of the live node that equals the parts, or null. The shard is locked.
const Node* find_live(const Shard& shard, uint64_t hash, Op op, DType dtype, std::span<const UOp> src, const Arg& arg) {
  for (size_t i = hash & shard.mask(); shard.slots[i].node; i = (i + 1) & shard.mask()) {
    if (shard.slots[i].hash != hash) continue;
    const Node* n = shard.slots[i].node;
    if (!same_node(n, op, dtype, src, arg)) continue;
    // A node whose count reached zero is being destroyed by another thread: it must not come back.
    uint32_t refs = n->refs.load(std::memory_order_relaxed);
    while (refs != 0)
      if (n->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acq_rel)) return n;
  }
  return nullptr;
}

// ---- memory of nodes: the hot part, from `hash` on, begins on a cache line
constexpr size_t kHotOffset = offsetof(Node, hash);
constexpr size_t kNodeOffset = block_pool::kBlockAlign - kHotOffset;
static_assert(kHotOffset <= block_pool::kBlockAlign);
constexpr size_t kPooledSrc = (block_pool::kBlockBytes - kNodeOffset - sizeof(Node)) / sizeof(Node*);
static_assert(kPooledSrc >= 3);

void* allocate_node(size_t n_src) {
  void* block = n_src <= kPooledSrc ? block_pool::allocate()
                                    : ::operator new(kNodeOffset + sizeof(Node) + n_src * sizeof(Node*), std::align_val_t(block_pool::kBlockAlign));
  return static_cast<char*>(block) + kNodeOffset;
}

void free_node(Node* n) {
  const size_t n_src = n->n_src;
  n->~Node();
  void* block = reinterpret_cast<char*>(n) - kNodeOffset;
  if (n_src <= kPooledSrc) block_pool::release(block);
  else ::operator delete(block, std::align_val_t(block_pool::kBlockAlign));
}

// ---- range sets
bool range_less(const Node* a, const Node* b) {
  const int64_t ia = a->arg.int_at(0), ib = b->arg.int_at(0);
  return ia != ib ? ia < ib : a < b;
}
void release(const RangeSet* s) {
  if (s && s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete s;
}
bool contains_all(const RangeSet* big, const RangeSet* small) {
  return std::includes(big->nodes.begin(), big->nodes.end(), small->nodes.begin(), small->nodes.end(), range_less);
}

// An owning set; `self` is the node itself when it is a RANGE.
const RangeSet* infer_ranges(Op op, std::span<const UOp> src, const Node* self) {
  if (op == Op::Range) return new RangeSet{{1}, {self}};
  // These end the ranges among their sources after the first.
  const size_t n_body = op == Op::End || op == Op::Reduce || op == Op::Stage ? 1 : src.size();
  const RangeSet* best = nullptr;
  for (const UOp& s : src.first(n_body))
    if (s->range_set && (!best || s->range_set->nodes.size() > best->nodes.size())) best = s->range_set;
  if (!best) return nullptr;
  const bool enough =
      std::ranges::all_of(src.first(n_body), [&](const UOp& s) { return !s->range_set || s->range_set == best || contains_all(best, s->range_set); });
  if (enough && n_body == src.size()) {
    best->refs.fetch_add(1, std::memory_order_relaxed);
    return best;
  }
  SmallVec<const Node*, 6> all(best->nodes);
  if (!enough) {
    for (const UOp& s : src.first(n_body))
      for (const Node* r : s.ranges())
        if (std::ranges::find(all, r) == all.end()) all.push_back(r);
    std::ranges::sort(all, range_less);
  }
  for (const UOp& s : src.subspan(n_body))
    if (const Node** r = std::ranges::find(all, s.node()); r != all.end()) all.erase(r);
  return all.empty() ? nullptr : new RangeSet{{1}, std::move(all)};
}

uint16_t infer_device(Op op, std::span<const UOp> src, const Arg& arg) {
  if (op == Op::Buffer) return device_id(arg.at(1).as_str());
  if (op == Op::Copy) return device_id(arg.as_str());
  for (const UOp& s : src)
    if (s->device) return s->device;
  return 0;
}

// ---- device names
struct DeviceNames {
  std::mutex mutex;
  std::deque<std::string> names{};
};
DeviceNames& device_names() { return immortal<DeviceNames>(); }

}  // namespace

// Ids count from 1; the highest bit says that the name is of several devices. (The path of a DISK may have commas.)
constexpr uint16_t kMultiBit = 1 << 15;

uint16_t device_id(std::string_view name) {
  if (name.empty()) return 0;
  const bool multi = name.find(',') != name.npos && !name.starts_with("DISK:");
  DeviceNames& d = device_names();
  std::lock_guard lock(d.mutex);
  const auto i = std::ranges::find(d.names, name) - d.names.begin();
  if (i == std::ssize(d.names)) d.names.emplace_back(name);
  return static_cast<uint16_t>((i + 1) | (multi ? kMultiBit : 0));
}

std::string_view device_name(uint16_t id) {
  if (id == 0) return {};
  DeviceNames& d = device_names();
  std::lock_guard lock(d.mutex);
  return d.names[(id & ~kMultiBit) - 1u];
}

std::vector<uint16_t> devices_of(uint16_t device) {
  if (!is_multi(device)) return {device};
  std::vector<uint16_t> out;
  for (const std::string& part : split(device_name(device), ',')) out.push_back(device_id(part));
  return out;
}

UOp UOp::make(Op op, DType dtype, std::span<const UOp> src, Arg arg) {
  uint64_t h = (static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(dtype)) + 0x51ED270B0A1F1D3Bull;
  h = hash_mix(h, arg.hash());
  for (const UOp& s : src) h = hash_mix(h, reinterpret_cast<uintptr_t>(s.node()));
  h *= 0xD6E8FEB86659FD93ull;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;

  Shard& shard = table().of(h);
  {
    std::lock_guard lock(shard.lock);
    if (const Node* n = find_live(shard, h, op, dtype, src, arg)) return adopt(n);
  }

  const OpInfo& op_info = info(op);
  const int want = op_info.n_src;
  WHIT_CHECK(want < 0 ? src.size() >= static_cast<size_t>(-1 - want) : src.size() == static_cast<size_t>(want), "{} takes {} sources, got {}",
             op_info.name, want < 0 ? fmt::format("{} or more", -1 - want) : fmt::format("{}", want), src.size());
  for (const UOp& s : src) WHIT_CHECK(s, "{} got a null source", op_info.name);

  Shape shape = detail::infer_shape(op, dtype, src, arg);
  int64_t vmin, vmax;
  detail::infer_bounds(op, dtype, src, arg, &vmin, &vmax);
  const uint16_t device = infer_device(op, src, arg);
  Node* n = new (allocate_node(src.size()))
      Node{std::move(shape), vmin, vmax, nullptr, {nullptr}, {nullptr}, h, std::move(arg), {1}, op, dtype, device, static_cast<uint32_t>(src.size())};
  n->range_set = infer_ranges(op, src, n);
  const Node** dst = n->src_begin();
  for (size_t i = 0; i < src.size(); ++i) {
    src[i]->refs.fetch_add(1, std::memory_order_relaxed);
    dst[i] = src[i].node();
  }

  const Node* winner = nullptr;
  {
    std::lock_guard lock(shard.lock);
    winner = find_live(shard, h, op, dtype, src, n->arg);
    if (!winner) shard.insert(h, n);
  }
  if (!winner) return adopt(n);
  // Another thread made the same node in between; ours was never in the table.
  n->refs.store(0, std::memory_order_relaxed);
  detail::destroy_node(n);
  return adopt(winner);
}

void detail::destroy_node(const Node* first) {
  SmallVec<const Node*, 32> work{first};
  while (!work.empty()) {
    const Node* n = work.back();
    work.pop_back();
    Shard& shard = table().of(n->hash);
    {
      std::lock_guard lock(shard.lock);
      shard.erase(n);
    }
    auto drop = [&](const Node* s) {
      if (s && s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) work.push_back(s);
    };
    for (const Node* s : n->src()) drop(s);
    if (NodeExtra* e = n->extra.load(std::memory_order_acquire)) {
      drop(e->realized);
      delete e;
    }
    release(n->range_set);
    delete n->key_cache.load(std::memory_order_acquire);
    free_node(const_cast<Node*>(n));
  }
}

std::vector<UOp> UOp::srcs() const {
  std::vector<UOp> out;
  out.reserve(n_->n_src);
  for (const Node* s : n_->src()) out.emplace_back(s);
  return out;
}

bool UOp::depends_on(const UOp& range) const {
  const auto all = ranges();
  return std::ranges::find(all, range.node()) != all.end();
}

UOp UOp::with_src(std::span<const UOp> src) const {
  bool same = src.size() == n_->n_src;
  for (size_t i = 0; same && i < src.size(); ++i) same = src[i].node() == n_->src_begin()[i];
  return same ? *this : make(op(), dtype(), src, arg());
}

UOp with_first_src(const Node* n, const UOp& x) {
  auto src = UOp(n).srcs();
  src[0] = x;
  return UOp::make(n->op, is_movement(n->op) ? x.dtype() : n->dtype, src, n->arg);
}

UOp rebuilt_chain(const UOp& chain, const UOp& from, const UOp& to, bool drop_detach) {
  std::vector<const Node*> links;
  for (const Node* n = chain.node(); n != from.node(); n = n->src()[0])
    if (!drop_detach || n->op != Op::Detach) links.push_back(n);
  UOp out = to;
  for (size_t i = links.size(); i-- > 0;) out = with_first_src(links[i], out);
  return out;
}

Sint::Sint(const UOp& u) : max_(u.vmax()) {
  WHIT_USER(u.dtype() == DType::WeakInt && u.shape().empty(), Type, "a size of {} and shape {}; expected an integer", u.dtype(), u.shape());
  if (u.vmin() != u.vmax()) symbol_ = u;
}
int64_t Sint::number() const {
  WHIT_USER(!symbol_, Value, "the size {} is symbolic; expected a number", str());
  return max_;
}
UOp Sint::uop() const { return symbol_ ? symbol_ : UOp::make(Op::Const, DType::WeakInt, {}, max_); }
std::string Sint::str() const { return symbol_ ? to_formula(symbol_) : fmt::format("{}", max_); }

Sints sizes_of(const Shape& s) {
  Sints out;
  for (size_t i = 0; i < s.size(); ++i) out.push_back(size_of(s, i));
  return out;
}

const Key128& UOp::key() const {
  if (const Key128* k = n_->key_cache.load(std::memory_order_acquire)) return *k;
  std::string bytes;
  for (const Node* n : toposort(*this, [](const Node* m) { return !m->key_cache.load(std::memory_order_acquire); })) {
    if (n->key_cache.load(std::memory_order_acquire)) continue;
    bytes.clear();
    bytes += info(n->op).name;
    bytes.push_back(static_cast<char>(n->dtype));
    if (n->op == Op::Buffer) {
      n->arg.at(1).append_bytes(bytes);
      n->arg.at(2).append_bytes(bytes);
    } else {
      n->arg.append_bytes(bytes);
    }
    for (const Node* s : n->src()) {
      const Key128* k = s->key_cache.load(std::memory_order_acquire);
      bytes.append(reinterpret_cast<const char*>(k), sizeof *k);
    }
    const auto* fresh = new Key128(hash128(bytes));
    const Key128* none = nullptr;
    if (!n->key_cache.compare_exchange_strong(none, fresh, std::memory_order_acq_rel)) delete fresh;
  }
  return *n_->key_cache.load(std::memory_order_acquire);
}

NodeList toposort(std::span<const UOp> roots, bool (*enter)(const Node*)) {
  return post_order(roots, [&](const Node* n) { return std::pair(0u, enter && !enter(n) ? 0u : n->n_src); });
}

NodeList toposort_outside_calls(std::span<const UOp> roots) {
  return post_order(roots, [](const Node* n) { return std::pair(n->op == Op::Call ? 1u : 0u, n->n_src); });
}

NodeList toposort(const UOp& root, bool (*enter)(const Node*)) { return toposort(std::span(&root, 1), enter); }

UOp substitute(const UOp& root, const std::unordered_map<const Node*, UOp>& map, bool (*enter)(const Node*)) {
  if (map.empty()) return root;
  Remade made;
  for (const auto& [from, to] : map) made.set(from, to);
  for (const Node* n : toposort(root, enter))
    if (!made.has(n) && (!enter || enter(n))) made.update(n);
  return made.of(root.node());
}
UOp substitute(const UOp& root, const std::unordered_map<const Node*, UOp>& map) { return substitute(root, map, nullptr); }

int64_t live_nodes() {
  int64_t n = 0;
  for (Shard& shard : table().shards) {
    std::lock_guard lock(shard.lock);
    n += static_cast<int64_t>(shard.n_live);
  }
  return n;
}

namespace {
std::mutex& extra_mutex() { return immortal<std::mutex>(); }
NodeExtra& extra_of(const UOp& u) {
  NodeExtra* e = u->extra.load(std::memory_order_acquire);
  if (!e) u->extra.store(e = new NodeExtra, std::memory_order_release);
  return *e;
}
}  // namespace

std::shared_ptr<void> payload(const UOp& buffer) {
  if (!buffer->extra.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(extra_mutex());
  return extra_of(buffer).payload;
}

void set_payload(const UOp& buffer, std::shared_ptr<void> p) {
  std::lock_guard lock(extra_mutex());
  NodeExtra& e = extra_of(buffer);
  e.payload_address.store(p.get(), std::memory_order_release);
  e.payload.swap(p);
}

UOp realized(const UOp& u) {
  if (!u->extra.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(extra_mutex());
  return UOp(extra_of(u).realized);
}

bool is_realized(const Node* n) {
  const NodeExtra* e = n->op == Op::Buffer ? nullptr : n->extra.load(std::memory_order_acquire);
  if (!e) return false;
  std::lock_guard lock(extra_mutex());
  return e->realized;
}

void set_realized(const UOp& u, UOp where) {
  UOp old;
  std::lock_guard lock(extra_mutex());
  NodeExtra& e = extra_of(u);
  old = UOp::adopt(e.realized);
  e.realized = std::move(where).release();
}

}  // namespace whit
