// A hash map from pointers to pointers, open addressing, no removal: the memo of a walk over a graph.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace whit {

template <class K, class V> class PtrMap {
 public:
  explicit PtrMap(size_t n_slots = 64) : slots_(n_slots) {}  ///< n_slots: a power of two
  /// The value of `key`, or null when there is none.
  V* find(const K* key) { return const_cast<V*>(std::as_const(*this).find(key)); }
  const V* find(const K* key) const {
    for (size_t i = start(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].first == key) return &slots_[i].second;
      if (!slots_[i].first) return nullptr;
    }
  }
  /// The value of `key`, made when there is none; valid until the next call.
  V& operator[](const K* key) {
    if (used_ * 2 >= slots_.size()) grow();
    size_t i = start(key);
    for (; slots_[i].first; i = (i + 1) & (slots_.size() - 1))
      if (slots_[i].first == key) return slots_[i].second;
    ++used_;
    slots_[i].first = key;
    return slots_[i].second;
  }
  size_t size() const { return used_; }

 private:
  size_t start(const K* key) const { return (reinterpret_cast<uintptr_t>(key) * 0x9E3779B97F4A7C15ull >> 20) & (slots_.size() - 1); }
  void grow() {
    std::vector<std::pair<const K*, V>> old(slots_.size() * 2);
    old.swap(slots_);
    for (auto& s : old) {
      if (!s.first) continue;
      size_t i = start(s.first);
      while (slots_[i].first) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = std::move(s);
    }
  }
  std::vector<std::pair<const K*, V>> slots_;
  size_t used_ = 0;
};

}  // namespace whit
