// A vector that keeps its first N elements inside itself.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace whit {

template <class T, size_t N> class SmallVec {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVec() = default;
  explicit SmallVec(size_t n) { resize(n); }
  SmallVec(size_t n, const T& v) { resize(n, v); }
  SmallVec(std::initializer_list<T> l) { append(l.begin(), l.end()); }
  explicit SmallVec(std::span<const T> s) { append(s.data(), s.data() + s.size()); }
  template <class It>
    requires requires(It it) {
      *it;
      ++it;
    }
  SmallVec(It first, It last) {
    append(first, last);
  }
  SmallVec(const SmallVec& o) { append(o.begin(), o.end()); }
  SmallVec(SmallVec&& o) noexcept { steal(o); }
  SmallVec& operator=(const SmallVec& o) {
    if (this != &o) {
      clear();
      append(o.begin(), o.end());
    }
    return *this;
  }
  SmallVec& operator=(SmallVec&& o) noexcept {
    if (this != &o) {
      destroy();
      steal(o);
    }
    return *this;
  }
  ~SmallVec() { destroy(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void push_back(T v) { emplace_back(std::move(v)); }
  template <class... A> T& emplace_back(A&&... a) {
    if (size_ == capacity_) {
      T v(std::forward<A>(a)...);
      grow(capacity_ * 2);
      return *new (data_ + size_++) T(std::move(v));
    }
    return *new (data_ + size_++) T(std::forward<A>(a)...);
  }
  void pop_back() { data_[--size_].~T(); }
  void clear() {
    std::destroy_n(data_, size_);
    size_ = 0;
  }
  void resize(size_t n, const T& v = T()) {
    reserve(n);
    while (size_ > n) pop_back();
    while (size_ < n) new (data_ + size_++) T(v);
  }
  template <class It> void append(It first, It last) {
    for (; first != last; ++first) emplace_back(*first);
  }
  T* insert(T* pos, T v) {
    const size_t i = static_cast<size_t>(pos - data_);
    emplace_back(std::move(v));
    for (size_t j = size_ - 1; j > i; --j) std::swap(data_[j], data_[j - 1]);
    return data_ + i;
  }
  void erase(T* pos) {
    for (; pos + 1 < end(); ++pos) *pos = std::move(pos[1]);
    pop_back();
  }
  bool operator==(const SmallVec& o) const {
    if (size_ != o.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == o.data_[i])) return false;
    return true;
  }
  operator std::span<const T>() const { return {data_, size_}; }

 private:
  T* inline_data() { return std::launder(reinterpret_cast<T*>(inline_)); }
  bool is_inline() const { return static_cast<const void*>(data_) == static_cast<const void*>(inline_); }
  void grow(size_t n) {
    T* fresh = static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    std::uninitialized_move_n(data_, size_, fresh);
    std::destroy_n(data_, size_);
    if (!is_inline()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = fresh;
    capacity_ = n;
  }
  void destroy() {
    clear();
    if (!is_inline()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = inline_data();
    capacity_ = N;
  }
  void steal(SmallVec& o) noexcept {
    if (o.is_inline()) {
      std::uninitialized_move_n(o.data_, o.size_, data_);
      size_ = o.size_;
      o.clear();
    } else {
      data_ = o.data_;
      size_ = o.size_;
      capacity_ = o.capacity_;
      o.data_ = o.inline_data();
      o.size_ = 0;
      o.capacity_ = N;
    }
  }

  T* data_ = inline_data();
  size_t size_ = 0;
  size_t capacity_ = N;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace whit
