// Arg: the closed variant that a node carries besides its sources, and Shape: an immutable list of sizes.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/small_vec.h"

namespace whit {

using Dims = SmallVec<int64_t, 8>;
struct Node;

/// An immutable shape behind an 8-byte handle; copying it is one atomic increment. () is the null handle. Of a symbolic
/// size the number is the largest that it may be, at least 2: memory has this layout; the symbol says how much of it counts.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims, std::span<const Node* const> symbols = {});
  Shape(const Dims& dims) : Shape(std::span<const int64_t>(dims.data(), dims.size())) {}
  Shape(const Shape& o) : rep_(o.rep_) { retain(); }
  Shape(Shape&& o) noexcept : rep_(std::exchange(o.rep_, nullptr)) {}
  Shape& operator=(Shape o) noexcept {
    std::swap(rep_, o.rep_);
    return *this;
  }
  ~Shape() { release(); }

  size_t size() const { return rep_ ? rep_->n : 0; }  ///< the rank
  bool empty() const { return !rep_; }                ///< a scalar
  int64_t operator[](size_t axis) const { return begin()[axis]; }
  const int64_t* begin() const { return rep_ ? rep_->dims() : nullptr; }
  const int64_t* end() const { return begin() + size(); }
  int64_t back() const { return end()[-1]; }
  int64_t numel() const;
  bool is_symbolic() const { return rep_ && rep_->is_symbolic; }
  /// The size of an axis as an expression of the index type, null when it is a number.
  const Node* symbol(size_t axis) const { return is_symbolic() ? rep_->symbols()[axis] : nullptr; }
  bool operator==(const Shape& o) const;
  operator std::span<const int64_t>() const { return {begin(), size()}; }
  /// "(2, 3)", "(4,)", "()" as Python prints it.
  std::string str() const;

 private:
  struct Rep {
    std::atomic<uint32_t> refs;
    uint32_t n : 31, is_symbolic : 1;
    int64_t* dims() { return reinterpret_cast<int64_t*>(this + 1); }
    const Node** symbols() { return reinterpret_cast<const Node**>(dims() + n); }  ///< owned
  };
  void retain() const {
    if (rep_) rep_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  void release();
  Rep* rep_ = nullptr;
};

/// None, bool, int, float, Invalid, text, a list of ints or a list of Args. Texts and lists are immutable and shared.
class Arg {
 public:
  enum class Kind : uint8_t { None, Bool, Int, Float, Invalid, Str, Ints, List };

  Arg() = default;
  Arg(bool v) : kind_(Kind::Bool), i_(v) {}
  Arg(int v) : kind_(Kind::Int), i_(v) {}
  Arg(int64_t v) : kind_(Kind::Int), i_(v) {}
  Arg(double v) : kind_(Kind::Float), f_(v) {}
  Arg(std::string_view text);
  Arg(const char* text) : Arg(std::string_view(text)) {}
  Arg(std::span<const int64_t> ints);
  Arg(const Dims& ints) : Arg(std::span<const int64_t>(ints.data(), ints.size())) {}
  Arg(std::span<const Arg> list);
  static Arg list(std::initializer_list<Arg> l) { return Arg(std::span<const Arg>(l.begin(), l.size())); }
  static Arg invalid() {
    Arg a;
    a.kind_ = Kind::Invalid;
    return a;
  }
  Arg(const Arg& o) : kind_(o.kind_), i_(o.i_) { retain(); }
  Arg(Arg&& o) noexcept : kind_(std::exchange(o.kind_, Kind::None)), i_(std::exchange(o.i_, 0)) {}
  Arg& operator=(Arg o) noexcept {
    std::swap(kind_, o.kind_);
    std::swap(i_, o.i_);
    return *this;
  }
  ~Arg() { release(); }

  Kind kind() const { return kind_; }
  explicit operator bool() const { return kind_ != Kind::None; }
  bool is_invalid() const { return kind_ == Kind::Invalid; }
  bool is_int() const { return kind_ == Kind::Int; }
  bool is_float() const { return kind_ == Kind::Float; }
  bool is_bool() const { return kind_ == Kind::Bool; }
  /// Typed reads; another kind is an internal error.
  bool as_bool() const { return expect(Kind::Bool), i_ != 0; }
  int64_t as_int() const { return expect(Kind::Int), i_; }
  double as_float() const { return expect(Kind::Float), f_; }
  std::string_view as_str() const;
  std::span<const int64_t> as_ints() const;
  std::span<const Arg> as_list() const;
  /// Element of a list or of ints.
  Arg at(size_t i) const;
  int64_t int_at(size_t i) const;
  /// A bool, int or float as double / as int64 (float truncates).
  double to_double() const;
  int64_t to_int() const;

  /// Bitwise equality: NaN equals the same NaN, 0.0 differs from -0.0, 1 differs from 1.0 and true.
  bool operator==(const Arg& o) const;
  uint64_t hash() const;
  /// Appends a canonical byte form: equal in every process.
  void append_bytes(std::string& out) const;

 private:
  struct Rep {
    std::atomic<uint32_t> refs{1};
    uint64_t hash = 0;
    std::string text;
    SmallVec<int64_t, 6> ints;
    SmallVec<Arg, 1>* list = nullptr;
  };
  bool shared() const { return kind_ >= Kind::Str; }
  /// Of what is not shared: 0 for None and Invalid.
  uint64_t bits() const { return kind_ == Kind::Float ? std::bit_cast<uint64_t>(f_) : static_cast<uint64_t>(i_); }
  void retain() const {
    if (shared()) rep_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  void release();
  void expect(Kind k) const { WHIT_CHECK(kind_ == k, "arg has kind {}, expected {}", int(kind_), int(k)); }

  Kind kind_ = Kind::None;
  union {
    int64_t i_ = 0;
    double f_;
    Rep* rep_;
  };
};

}  // namespace whit
