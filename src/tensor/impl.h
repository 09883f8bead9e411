// What is behind a Tensor handle, and the helpers that all front-end files share.
#pragma once
#include <fmt/format.h>

#include <functional>

#include "engine/storage.h"
#include "ir/build.h"
#include "rules/gradient.h"
#include "whit/tensor.h"

namespace whit {

struct Tensor::Impl : std::enable_shared_from_this<Tensor::Impl> {
  explicit Impl(UOp v, std::shared_ptr<Storage> s = {});
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  UOp value;  ///< the value; of a view: the chain over the storage's PARAM
  std::shared_ptr<Storage> storage;
  bool is_param = true;
  bool is_cut_off = false;
  Tensor grad;
  /// Unread: backward made it inside of a capture and nobody has looked since. LeftOut: there it was not computed. Wanted: somebody
  /// has read or set it, at whatever time.
  enum class GradUse : uint8_t { None, Unread, LeftOut, Wanted } grad_use = GradUse::None;
  Impl *prev = nullptr, *next = nullptr;  ///< list of live tensors

  const UOp& state() const { return storage ? storage->state() : value; }
  UOp uop() const { return storage ? apply_chain(value, storage->state()) : value; }
  /// The value of another tensor, and its memory.
  void take(const Impl& o) {
    value = o.value;
    storage = o.storage;
  }
};

namespace detail {
/// A tensor whose memory `fill` writes, all bytes of it; not called when there are none. errors: as Tensor::from_bytes
using FillFn = std::function<void(std::span<uint8_t>)>;
Tensor from_host(DType dtype, const IntList& shape, const TensorOptions& o, const FillFn& fill);

// ---- axes and shapes
/// An axis in [0, rank). errors: Index "[op] axis 3 is out of range for shape (4, 5); valid axes are -2..1"
int64_t resolve_axis(const char* op, int64_t axis, const Shape& shape);
/// The same where there must be one: a tensor without axes has none. errors: Index
size_t must_have_axis(const char* op, int64_t axis, const Shape& shape);
/// Sorted, unique axes in [0, rank). errors: Index; Runtime for an axis given twice
Dims resolve_axes(const char* op, const Axes& axes, const Shape& shape);
/// The axes first .. end - 1.
Dims axes_from(size_t first, size_t end);
/// The common shape of broadcasting. errors: Index, naming both shapes
Shape broadcast_shapes(const char* op, std::initializer_list<const Shape*> shapes);
/// x in a shape that it can be broadcast to (checked by the caller).
UOp broadcast_to(const UOp& x, const Shape& shape);
Tensor broadcast_to(const char* op, const Tensor& x, const Shape& shape);
int64_t prod(std::span<const int64_t> dims);
std::string dims_str(std::span<const int64_t> dims);
/// Sizes, in normal form: equal ones are one node.
Sint plus(const Sint& a, const Sint& b);
Sint minus(const Sint& a, const Sint& b);
Sint times(const Sint& a, const Sint& b);
Sint product(const Shape& s, std::span<const int64_t> axes);
Shape to_shape(std::span<const Sint> sizes);
/// Is a <= b, always or for the values that their variables are bound to?
bool at_most(const Sint& a, const Sint& b);
/// x with the symbolic axes among `axes` as long as they can be, `outside` past their size; its other axes stay.
Tensor whole_axes(const Tensor& x, std::span<const int64_t> axes, const UOp& outside = {});
/// The elements [begin, end) of an axis. errors: Value when they are no part of it
Tensor part(const Tensor& x, size_t axis, const Sint& begin, const Sint& end);
/// The part of `all` that counts.
Tensor sized(const Tensor& all, std::span<const Sint> sizes);
/// The places along an axis: 0, 1 .. in a shape of ones but there, which broadcasts with x.
Tensor lane_index(const Tensor& x, int64_t axis, DType dt = DType::Int32);
/// fn of x for an fn that treats each place of the first n axes alone: x may have symbolic sizes there.
Tensor row_by_row(const char* op, const Tensor& x, size_t n, const std::function<Tensor(const Tensor&)>& fn);

/// A distance in elements (stride, padding ..) that can be multiplied by another. errors: Value, naming `what`
void check_step(const char* op, const char* what, int64_t v);
/// n numbers from one or n. errors: Value, naming `what`
Dims spread(const char* op, const char* what, const IntList& list, size_t n);

// ---- values
/// Fresh memory on a device, not written yet: a flat BUFFER.
UOp fresh_buffer(DType dtype, int64_t n_elems, std::string_view device);
/// A tensor over a storage whose flat state is `state`.
/// A tensor for a value in memory (RESHAPEs, UNSHARDs and SHRINKs of symbolic size over a BUFFER).
Tensor memory_tensor(const UOp& view);
/// Fresh memory of a device, or of several: cut along `axis`, or whole on each (-1).
Tensor fresh_tensor(DType dtype, const Shape& shape, std::string_view device, int64_t axis = -1);
void must_run_kernels(std::string_view device);  ///< errors: Runtime for a file
/// Where new memory beside x goes: its device, the default one for a file.
std::optional<std::string> home_of(const Tensor& x);
/// x stored into such.
Tensor stored(const UOp& x, std::string_view device, int64_t axis = -1);
/// A new pure tensor.
inline Tensor wrap(UOp value) { return Tensor(std::make_shared<Tensor::Impl>(std::move(value))); }
/// CAST, folded for constants and of their broadcasts.
UOp cast_value(const UOp& x, DType dtype);
/// The scalar CONST below movement ops, or null.
UOp base_const(const UOp& x);
/// A new tensor by a movement op: a view of the same storage where that is possible.
template <class Fn> Tensor move_view(const Tensor& x, Fn&& fn) {
  const auto& impl = x.impl();
  if (impl->storage) return Tensor(std::make_shared<Tensor::Impl>(fn(impl->value), impl->storage));
  return wrap(fn(impl->value));
}
/// errors: Type when x is undefined
const Tensor& must_be_defined(const char* op, const Tensor& x);
/// Device of a tensor, "" when there is none.
std::string_view device_of(const UOp& x);
/// The device of tensors that name none; opens nothing.
std::string default_device_name();
/// Options with the dtype and the device of x where they name none. errors: Runtime for a device when x is on several
TensorOptions like(const char* op, const Tensor& x, const TensorOptions& o);
/// The one spelling of a device's name, or of several joined by commas; the default device for "".
std::string canonical_name(const std::string& device);
/// x on a device, where it is computed: itself when it is there, else COPY.
UOp on_device(const UOp& x, std::string_view device);
/// Common dtype and shape of several tensors, weak constants lifted: the operands of an elementwise op.
std::vector<UOp> broadcasted(const char* op, std::initializer_list<const Tensor*> xs);

/// Zeros in the shape and dtype of x.
inline UOp zeros_like(const UOp& x) { return broadcast_scalar(constant(x.dtype(), 0.0), x.shape()); }
/// An empty part of x, of shape `dims`: it depends on x, so x has a gradient of zeros.
Tensor nothing_of(const Tensor& x, std::span<const int64_t> dims);

inline Tensor alu1(Op op, const Tensor& x) { return wrap(alu(op, {x.uop()})); }
/// A dtype, and x in one, that memory can hold: weak ones take the defaults.
DType strong_of(DType dt);
Tensor strong(const Tensor& x);
/// The float dtype that a function of `dt` is computed in: float32 at least.
DType wide_float(DType dt);
/// x cast to a float dtype that the op can work in (bool and ints: the default float; weakint: weakfloat).
Tensor to_float_dtype(const Tensor& x);
/// x in the dtype of its mean: bool and ints in float32, whatever the default float.
Tensor to_mean_dtype(const Tensor& x);
/// The shape after a reduction: the axes removed, or of size 1.
Shape reduced_dims(const Shape& shape, std::span<const int64_t> axes, bool keepdim);
/// Two values joined as a monoid (add, mul, max, min) does.
Tensor by_monoid(std::string_view monoid, const Tensor& x, const Tensor& y);
/// REDUCE over axes, the axes removed unless keepdim.
Tensor reduce_tensor(const Tensor& x, std::string_view monoid, std::span<const int64_t> axes, bool keepdim);

/// A 3x3 convolution of stride 1 (x [b, cin, h, w], float32; pads as of pad()) by Winograd, where WINO and the sizes want
/// it. `reversed`: the weight is the transpose (of channels, and of taps from last to first) of what is meant.
std::optional<Tensor> winograd(const Tensor& x, const Tensor& weight, const Dims& pads, bool reversed = false);

/// bool mask [.., n at dim]: index == lane number.
Tensor one_hot_along(const char* op, const Tensor& index, int64_t n, int64_t dim);

/// In a capture, before `roots` are run: gradients that nobody has read and that would have to be computed before a store of the
/// roots overwrites what they read are left out; who asks for them later is told.
void leave_out_gradients(std::span<const UOp> roots);
inline constinit thread_local int n_traces = 0;  ///< that are open: is_tracing()
/// Every live tensor.
std::vector<Tensor> live_tensors();

}  // namespace detail
}  // namespace whit
