// Builders: short names for making nodes. They check dtypes, put commutative operands in canonical order (constants
// right) and fold only what costs nothing to see (x+0, x*1 and constants, for the index type). Everything else is a
// rule.
#pragma once
#include "ir/uop.h"

namespace whit {

/// A scalar constant of `dtype`; the value is normalised to what the dtype holds (floats rounded, ints wrapped).
UOp constant(DType dtype, double v);
UOp constant(DType dtype, int64_t v);
inline UOp constant(DType dtype, int v) { return constant(dtype, static_cast<int64_t>(v)); }
inline UOp idx(int64_t v) { return constant(DType::WeakInt, v); }
inline UOp const_bool(bool v) { return constant(DType::Bool, static_cast<int64_t>(v)); }
/// The value `v` in x's dtype (a scalar).
UOp const_like(const UOp& x, double v);

/// Value of a CONST of int or bool dtype.
inline int64_t const_int(const UOp& c) { return c.arg().to_int(); }
inline bool is_const_int(const UOp& u, int64_t v) { return u.is_const() && !is_float(u.dtype()) && !u.arg().is_invalid() && u.arg().to_int() == v; }

/// Any unary, binary or ternary elementwise op. Result dtype: bool for comparisons, else that of the first (WHERE:
/// second) source.
UOp alu(Op op, std::span<const UOp> src);
inline UOp alu(Op op, std::initializer_list<UOp> src) { return alu(op, std::span<const UOp>(src.begin(), src.size())); }

inline UOp operator+(const UOp& a, const UOp& b) { return alu(Op::Add, {a, b}); }
inline UOp operator-(const UOp& a, const UOp& b) { return alu(Op::Sub, {a, b}); }
inline UOp operator*(const UOp& a, const UOp& b) { return alu(Op::Mul, {a, b}); }
inline UOp operator-(const UOp& a) { return alu(Op::Neg, {a}); }
inline UOp operator&(const UOp& a, const UOp& b) { return alu(Op::And, {a, b}); }
inline UOp operator|(const UOp& a, const UOp& b) { return alu(Op::Or, {a, b}); }
inline UOp operator^(const UOp& a, const UOp& b) { return alu(Op::Xor, {a, b}); }
inline UOp operator+(const UOp& a, int64_t b) { return a + constant(a.dtype(), b); }
inline UOp operator-(const UOp& a, int64_t b) { return a + constant(a.dtype(), -b); }
inline UOp operator*(const UOp& a, int64_t b) { return a * constant(a.dtype(), b); }
inline UOp floor_div(const UOp& a, int64_t b) { return alu(Op::FloorDiv, {a, constant(a.dtype(), b)}); }
inline UOp floor_mod(const UOp& a, int64_t b) { return alu(Op::FloorMod, {a, constant(a.dtype(), b)}); }
inline UOp lt(const UOp& a, const UOp& b) { return alu(Op::CmpLt, {a, b}); }
inline UOp lt(const UOp& a, int64_t b) { return lt(a, constant(a.dtype(), b)); }
inline UOp ge(const UOp& a, int64_t b) { return lt(constant(a.dtype(), b - 1), a); }  ///< ints only
inline UOp logical_not(const UOp& a) { return a ^ const_bool(true); }
inline UOp where(const UOp& c, const UOp& x, const UOp& y) { return alu(Op::Where, {c, x, y}); }
/// Sources: `first` and then `rest`.
std::vector<UOp> with_front(const UOp& first, std::span<const UOp> rest);
UOp cast(const UOp& x, DType dtype);  ///< x itself when it has the dtype

/// Loops and memory of a kernel.
UOp range(int64_t size, int64_t id, AxisType type);
inline AxisType axis_type(const Node* r) { return static_cast<AxisType>(r->arg.int_at(1)); }
inline int64_t range_id(const Node* r) { return r->arg.int_at(0); }
inline int64_t range_size(const Node* r) { return r->arg.int_at(2); }
UOp param(int64_t slot, DType dtype, std::span<const int64_t> dims);
UOp index(const UOp& buffer, const UOp& flat, const UOp& gate = {});
UOp load(const UOp& index);
UOp store(const UOp& target, const UOp& value);
UOp stages_in_scratch(const UOp& root);  ///< each STAGE as AFTER(SCRATCH, END), with its elements in the order of its ranges
UOp end(const UOp& store, std::span<const UOp> ranges);
UOp reduce(const UOp& x, std::string_view monoid, std::span<const UOp> ranges);  ///< over ranges; x itself for none

/// Tensor graph. No-ops return x.
UOp buffer(DType dtype, int64_t n_elems, std::string_view device);  ///< fresh unique id
UOp reshape(const UOp& x, std::span<const int64_t> dims);
UOp expand(const UOp& x, std::span<const int64_t> dims);
UOp permute(const UOp& x, std::span<const int64_t> axes);
/// RESHAPE and PERMUTE that do not look through x: a tensor's node must stay in the graphs made from it, so that
/// gradients find it.
UOp shaped(const UOp& x, std::span<const int64_t> dims);
inline UOp shaped(const UOp& x, std::initializer_list<int64_t> dims) { return shaped(x, std::span(dims.begin(), dims.size())); }
UOp permuted(const UOp& x, std::span<const int64_t> axes);
/// The order of axes that takes axis `from` of `rank` axes to place `to`.
Dims moved_axis(size_t rank, size_t from, size_t to);
/// `rest` with a number before it.
Dims with_front(int64_t first, std::span<const int64_t> rest);
/// Sizes of 1, but n at `axis`: numbers along that axis.
Dims along(size_t rank, size_t axis, int64_t n);
UOp pad(const UOp& x, std::span<const int64_t> before_after);
UOp shrink(const UOp& x, std::span<const int64_t> begin_end);
/// One axis of x from `begin` to before `end`.
UOp cut(const UOp& x, size_t axis, int64_t begin, int64_t end);
/// SHRINK and PAD with places and sizes (of the result) that may be symbolic.
UOp shrink_to(const UOp& x, std::span<const Sint> begin, std::span<const Sint> size);
UOp pad_to(const UOp& x, std::span<const Sint> before, std::span<const Sint> size);
/// The part of a value as large as `shape` can be that counts.
UOp sized(const UOp& most, const Shape& shape);
/// x with its axes of symbolic size padded to the most that they can be.
UOp whole(const UOp& x);
/// Of an axis of a SHRINK or PAD: where x begins in the result (PAD) or the result in x (SHRINK), and the result's size.
std::pair<Sint, Sint> box_of(const Node* n, size_t axis);
UOp flip(const UOp& x, std::span<const int64_t> axes);
UOp window(const UOp& x, int64_t axis, int64_t k, int64_t stride, int64_t dilation);
UOp unwindow(const UOp& x, int64_t axis, int64_t n, int64_t stride, int64_t dilation);
UOp shard(const UOp& x, int64_t axis, int64_t n_devices);
UOp unshard(const UOp& x, int64_t axis, int64_t n_devices);
UOp gather(const UOp& x, const UOp& index);
UOp scatter(const UOp& base, const UOp& index, const UOp& src, const char* how);  ///< "set" or "add"
UOp reduce_axes(const UOp& x, std::string_view monoid, std::span<const int64_t> axes);
/// A scalar spread over a shape (RESHAPE to all ones, EXPAND).
UOp broadcast_scalar(const UOp& scalar, std::span<const int64_t> dims);
UOp broadcast_scalar(const UOp& scalar, const Shape& shape);
inline UOp broadcast_scalar(const UOp& scalar, const Dims& dims) { return broadcast_scalar(scalar, std::span(dims)); }

/// A named size between lo and hi whose value comes with the run. errors: Value when hi < lo
UOp variable(std::string_view name, int64_t lo, int64_t hi);
/// The variable with a value. errors: Assertion when it is out of bounds or `variable` is no VARIABLE
UOp bind(const UOp& variable, int64_t value);

}  // namespace whit
