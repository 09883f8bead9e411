// A vector that keeps its first N elements inside itself: Boost's, with pointers for iterators, so that it is a std::span where
// one is asked for.
#pragma once
#include <boost/container/small_vector.hpp>
#include <initializer_list>
#include <span>

namespace whit {

template <class T, size_t N> class SmallVec : public boost::container::small_vector<T, N> {
  using Base = boost::container::small_vector<T, N>;

 public:
  using iterator = T*;
  using const_iterator = const T*;

  SmallVec() = default;
  explicit SmallVec(size_t n) : Base(n) {}
  SmallVec(size_t n, const T& v) : Base(n, v) {}
  SmallVec(std::initializer_list<T> l) : Base(l) {}
  explicit SmallVec(std::span<const T> s) : Base(s.begin(), s.end()) {}
  template <std::input_iterator It> SmallVec(It first, It last) : Base(first, last) {}

  T* begin() { return this->data(); }
  T* end() { return this->data() + this->size(); }
  const T* begin() const { return this->data(); }
  const T* end() const { return this->data() + this->size(); }

  template <class It> void append(It first, It last) { Base::insert(Base::end(), first, last); }
  void insert(const T* at, T v) { Base::insert(Base::begin() + (at - begin()), std::move(v)); }
  void erase(const T* at) { Base::erase(Base::begin() + (at - begin())); }
};

}  // namespace whit
