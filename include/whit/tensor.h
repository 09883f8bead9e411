// Tensor: the front end of whit. Operations build a graph and never run anything; realize, item, copy_to and to_vector
// run it. Optional arguments are structs with designated initialisers:
//   Tensor y = x.conv2d(w, {.stride = 2, .padding = 1}).relu().sum({0, 1}, true);
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "ir/uop.h"

namespace whit {

class Tensor;
class Index;
class Storage;

/// One number or a list of numbers: sizes, axes, strides, paddings. Sizes of shapes may be symbolic.
class IntList {
 public:
  IntList() = default;
  IntList(int v) : v_{v}, is_single_(true) {}
  IntList(int64_t v) : v_{v}, is_single_(true) {}
  IntList(const UOp& v) : IntList({Sint(v)}) { is_single_ = true; }
  IntList(std::initializer_list<Sint> l) : IntList(std::span<const Sint>(l.begin(), l.size())) {}
  IntList(std::span<const Sint> l);
  IntList(const Sints& l) : IntList(std::span<const Sint>(l)) {}
  IntList(std::span<const int64_t> l) : v_(l) {}
  IntList(const std::vector<int64_t>& l) : v_(std::span<const int64_t>(l)) {}
  IntList(const Dims& l) : v_(l) {}
  IntList(const Shape& s) : v_(std::span<const int64_t>(s)) {
    if (s.is_symbolic()) *this = sizes_of(s);
  }
  bool is_single() const { return is_single_; }
  size_t size() const { return v_.size(); }
  bool empty() const { return v_.empty(); }
  bool is_symbolic() const { return !symbols_.empty(); }
  Sint at(size_t i) const { return is_symbolic() && symbols_[i] ? Sint(symbols_[i]) : Sint(v_[i]); }
  Shape shape() const;  ///< these sizes
  std::string str() const { return shape().str(); }
  /// As numbers. errors: Value for a symbolic one
  int64_t operator[](size_t i) const { return numbers()[i]; }
  const int64_t* begin() const { return numbers().begin(); }
  const int64_t* end() const { return numbers().end(); }
  operator std::span<const int64_t>() const { return numbers(); }

 private:
  const Dims& numbers() const {
    if (is_symbolic()) refuse();
    return v_;
  }
  [[noreturn]] void refuse() const;
  Dims v_;
  std::vector<UOp> symbols_;  // by axis, null for numbers; none at all when all are
  bool is_single_ = false;
};
/// Begin and end of an axis, or what is padded before and after it.
using AxisPair = std::optional<std::pair<Sint, Sint>>;

/// Axes of a reduction: nothing given means all of them; an empty list means none.
class Axes {
 public:
  Axes() = default;
  Axes(std::nullopt_t) {}
  Axes(int v) : list_(v), all_(false) {}
  Axes(int64_t v) : list_(v), all_(false) {}
  Axes(std::initializer_list<int64_t> l) : list_(std::span(l.begin(), l.size())), all_(false) {}
  Axes(const IntList& l) : list_(l), all_(false) {}
  Axes(const std::vector<int64_t>& l) : list_(l), all_(false) {}
  bool all() const { return all_; }
  const IntList& list() const { return list_; }

 private:
  IntList list_;
  bool all_ = true;
};

/// Where and as what a new tensor is made. No device: the default one; no dtype: the default of the function.
struct TensorOptions {
  std::optional<std::string> device = {};
  std::optional<DType> dtype = {};
  bool buffer = true;  ///< of full, zeros, ones: false makes a constant without device
};

struct PadOptions {
  std::string mode = "constant";  ///< constant, reflect, replicate, circular
  double value = 0.0;
};
struct ConvOptions {
  int64_t groups = 1;
  IntList stride = 1;
  IntList dilation = 1;
  IntList padding = 0;  ///< one number, one an axis, or begin and end of each axis from the last to the first
  std::optional<DType> dtype = {};
};
struct ConvTransposeOptions {
  int64_t groups = 1;
  IntList stride = 1;
  IntList dilation = 1;
  IntList padding = 0;
  IntList output_padding = 0;
};
struct PoolOptions {
  IntList kernel_size = {2, 2};
  std::optional<IntList> stride = {};  ///< the kernel size when absent
  IntList dilation = 1;
  IntList padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< average pooling only
};
struct CloseOptions {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;
};
struct AttentionOptions {
  const Tensor* attn_mask = nullptr;
  double dropout_p = 0.0;
  bool is_causal = false;
  bool enable_gqa = false;
};
struct RandintOptions {
  int64_t low = 0;
  int64_t high = 10;
  std::optional<DType> dtype = {};
  std::optional<std::string> device = {};
};

class Tensor {
 public:
  /// The undefined tensor: `defined()` is false, everything else fails.
  Tensor() = default;
  /// Constants without device: bool, weakint, weakfloat.
  template <std::integral T> Tensor(T v) : Tensor(scalar(v)) {}
  template <std::floating_point T> Tensor(T v) : Tensor(weak_float(static_cast<double>(v))) {}
  /// A pure value.
  explicit Tensor(const UOp& value);
  /// A constant of a given dtype, without device.
  static Tensor constant(double v, DType dtype);
  static Tensor constant_int(int64_t v, DType dtype);

  // ---- from data. Bytes are copied at once, row-major, in the layout of `dtype`; bool is one byte
  static Tensor from_bytes(const void* data, DType dtype, const IntList& shape, const TensorOptions& o = {});
  /// Device memory of somebody else: no copy, no ownership.
  static Tensor from_blob(void* ptr, const IntList& shape, const TensorOptions& o = {});
  template <class T> static Tensor from(const std::vector<T>& data, const IntList& shape, const TensorOptions& o = {});
  template <class T> static Tensor from(const std::vector<T>& data) { return from(data, static_cast<int64_t>(data.size())); }
  template <class T> static Tensor from(std::initializer_list<T> data) { return from(std::vector<T>(data), static_cast<int64_t>(data.size())); }

  // ---- what it is
  bool defined() const { return impl_ != nullptr; }
  /// The value now, as a graph.
  UOp uop() const;
  /// Of a symbolic size the number is the most it can be, and symbol() the expression.
  const Shape& shape() const;
  DType dtype() const;
  size_t ndim() const { return shape().size(); }
  int64_t numel() const { return shape().numel(); }
  int64_t size(int64_t dim) const;
  /// Absent for constants, which have no storage. Names of several devices are joined by commas.
  std::optional<std::string> device() const;
  /// The devices that it is on; none for constants.
  std::vector<std::string> devices() const;
  int64_t element_size() const;
  int64_t nbytes() const { return numel() * element_size(); }
  bool is_floating_point() const { return is_float(dtype()); }
  /// "<Tensor <UOp CPU (2, 3) dtypes.float> on CPU with grad None>"
  std::string repr() const;
  /// Same object: two handles of one tensor.
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }
  const void* id() const { return impl_.get(); }
  bool is_param() const;
  Tensor& is_param_(bool is_param = true);
  /// Undefined when there is none. errors: Jit when a captured function left it out (docs/jit.md)
  Tensor grad() const;
  /// Has this no gradient because what backward was called on led here only through a value that was realised before?
  bool is_cut_off() const;
  void set_grad(const Tensor& grad);
  /// True when its value is in memory and up to date.
  bool is_realized() const;

  // ---- running
  Tensor& realize();
  /// Realises several tensors together: shared parts are computed once.
  static void realize_all(std::span<const Tensor> tensors);
  /// Reads all elements (row-major, dtype's layout; weak dtypes as their strong ones) into host memory.
  void copy_to(void* host, size_t n_bytes) const;
  std::vector<std::byte> bytes() const;
  template <class T> std::vector<T> to_vector() const;  ///< converted to T; float, double, int32_t, int64_t, uint64_t, uint8_t, bool
  /// The only element, as double / as int64. Error: Assertion unless there is one element.
  double item() const;
  int64_t item_int() const;

  // ---- state
  /// New value for the memory of this tensor; every view of it sees it. errors: Runtime for another dtype or device
  Tensor& assign(const Tensor& x);
  /// Rebinds this tensor (all handles of it) to the value of x; same shape.
  Tensor& replace(const Tensor& x);
  Tensor clone(const std::optional<std::string>& to_device = {}) const;
  Tensor detach() const;
  Tensor contiguous() const;
  Tensor contiguous_backward() const;
  Tensor to(const std::optional<std::string>& to_device) const;
  Tensor& to_(const std::optional<std::string>& to_device);
  /// On several devices: the whole on each, or cut into equal parts along `axis`. What is computed from it is computed
  /// by each device for its part; to() brings a value back. One device: to().
  /// errors: Runtime when it is on several devices already, or the axis does not divide by their number; Index; Value for
  /// a device that is named twice
  Tensor shard(std::span<const std::string> devices, std::optional<int64_t> axis = {}) const;
  Tensor shard(std::initializer_list<std::string> devices, std::optional<int64_t> axis = {}) const {
    return shard(std::span<const std::string>(devices.begin(), devices.size()), axis);
  }
  Tensor& shard_(std::span<const std::string> devices, std::optional<int64_t> axis = {});
  /// On the devices of y, cut as y is.
  Tensor shard_like(const Tensor& y) const;

  // ---- autograd
  /// Gradients of this scalar (or of the sum of this times `gradient`) with respect to targets; zeros where unreached.
  std::vector<Tensor> gradient(std::span<const Tensor> targets, const Tensor& gradient = {}) const;
  std::vector<Tensor> gradient(std::initializer_list<Tensor> targets, const Tensor& grad_out = {}) const {
    return gradient(std::span<const Tensor>(targets.begin(), targets.size()), grad_out);
  }
  /// Accumulates into grad() of every live float tensor with a device that this depends on.
  const Tensor& backward(const Tensor& gradient = {}) const;

  // ---- graphs as functions
  /// A placeholder of this shape and dtype: argument number `slot` of a body that `call` takes.
  Tensor as_param(int64_t slot) const;
  /// The values of `body`, whose as_param placeholders stand for `args`, as results of one CALL. `gradient`: an id of
  /// register_gradient, or 0 for the derivative of the body. errors: Runtime when placeholders and arguments differ
  static std::vector<Tensor> call(std::span<const Tensor> args, std::span<const Tensor> body, int64_t gradient = 0);
  /// What the tensors wait to compute becomes one CALL node; nothing runs.
  static void callify(std::span<const Tensor> tensors);
  /// Loops of one's own. `kernel` gets a PARAM a tensor, of its shape, and gives SINK(END(STORE(INDEX(param, i), value),
  /// ranges..), ..) as in docs/ir.md, section 2; result i is tensor i after the stores. A LOAD sees what was before. It
  /// enters the graph as gathers, reductions and scatters, so it is lazy, fused, and differentiable without `gradient`.
  /// errors: NotImplemented for an op that has no such form
  using KernelFn = std::function<UOp(std::span<const UOp> params)>;
  static std::vector<Tensor> custom_kernel(std::span<const Tensor> tensors, const KernelFn& kernel, int64_t gradient = 0);

  // ---- creation
  static Tensor empty(const IntList& shape, const TensorOptions& o = {});
  static Tensor full(const IntList& shape, const Tensor& fill_value, const TensorOptions& o = {});
  static Tensor zeros(const IntList& shape, const TensorOptions& o = {});
  static Tensor ones(const IntList& shape, const TensorOptions& o = {});
  Tensor empty_like(const TensorOptions& o = {}) const;
  Tensor full_like(const Tensor& fill_value, const TensorOptions& o = {}) const;
  Tensor zeros_like(const TensorOptions& o = {}) const;
  Tensor ones_like(const TensorOptions& o = {}) const;
  /// A constant of this tensor's shape and dtype, without device.
  Tensor const_like(const Tensor& v, std::optional<DType> dtype = {}) const;
  static Tensor arange(int64_t start, int64_t stop, int64_t step = 1, std::optional<DType> dtype = {});
  static Tensor arange(int64_t stop) { return arange(0, stop); }
  static Tensor arange(const UOp& stop, std::optional<DType> dtype = {});  ///< of symbolic size
  static Tensor arange_float(double start, double stop, double step = 1, std::optional<DType> dtype = {});
  static Tensor linspace(double start, double stop, int64_t steps, std::optional<DType> dtype = {});
  static Tensor eye(int64_t n, std::optional<int64_t> m = {}, std::optional<DType> dtype = {});

  // ---- random: threefry streams, one a device
  static void manual_seed(uint64_t seed = 0);
  /// Where the streams stand: "seed", and "DEVICE.number", ".key" and ".counter" for each device that has drawn.
  static std::vector<std::pair<std::string, Tensor>> random_state();
  /// Continues from such a state; a captured function draws on from it too.
  static void set_random_state(std::span<const std::pair<std::string, Tensor>> state);
  static Tensor random_bits(const Tensor& key, const Tensor& counter, int64_t num);
  static Tensor rand(const IntList& shape, const TensorOptions& o = {});
  static Tensor randn(const IntList& shape, const TensorOptions& o = {});
  static Tensor randint(const IntList& shape, const RandintOptions& o = {});
  static Tensor normal(const IntList& shape, double mean = 0, double std = 1, const TensorOptions& o = {});
  static Tensor uniform(const IntList& shape, double low = 0, double high = 1, const TensorOptions& o = {});
  static Tensor scaled_uniform(const IntList& shape, const TensorOptions& o = {});
  static Tensor glorot_uniform(const IntList& shape, const TensorOptions& o = {});
  static Tensor kaiming_uniform(const IntList& shape, double a = 0.01, const TensorOptions& o = {});
  static Tensor kaiming_normal(const IntList& shape, double a = 0.01, const TensorOptions& o = {});
  static Tensor randperm(int64_t n, const TensorOptions& o = {});
  Tensor rand_like(const TensorOptions& o = {}) const;
  Tensor randn_like(const TensorOptions& o = {}) const;
  Tensor multinomial(int64_t num_samples = 1, bool replacement = false) const;
  Tensor dropout(double p = 0.5) const;

  // ---- dtype
  Tensor cast(DType dtype) const;
  Tensor bitcast(DType dtype) const;
  Tensor to_float() const { return cast(DType::Float32); }
  Tensor to_half() const { return cast(DType::Float16); }
  Tensor to_int() const { return cast(DType::Int32); }
  Tensor to_bool() const { return cast(DType::Bool); }

  // ---- movement
  Tensor reshape(const IntList& shape) const;  ///< one -1 is allowed
  Tensor view(const IntList& shape) const { return reshape(shape); }
  Tensor expand(const IntList& shape) const;  ///< -1 keeps a size; may add axes on the left
  Tensor permute(const IntList& order) const;
  Tensor flip(const IntList& axes) const;
  Tensor shrink(std::span<const AxisPair> begin_end) const;
  Tensor shrink_to(std::span<const std::optional<Sint>> shape) const;
  /// Begin and end of each axis from the last to the first; negative numbers shrink.
  Tensor pad(const IntList& padding, const PadOptions& o = {}) const;
  /// Begin and end for every axis from the first to the last.
  Tensor pad_axes(std::span<const AxisPair> padding, const PadOptions& o = {}) const;
  Tensor pad_to(std::span<const std::optional<Sint>> shape, double value = 0) const;
  Tensor squeeze(std::optional<int64_t> dim = {}) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor transpose(int64_t dim0 = 1, int64_t dim1 = 0) const;
  Tensor T() const { return transpose(); }
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor unflatten(int64_t dim, const IntList& sizes) const;
  Tensor rearrange(std::string_view formula, std::span<const std::pair<std::string, int64_t>> sizes = {}) const;
  std::vector<Tensor> split(const IntList& sizes, int64_t dim = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
  static std::vector<Tensor> meshgrid(std::span<const Tensor> tensors, std::string_view indexing = "ij");
  static Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
  static Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
  static Tensor cat(std::initializer_list<Tensor> l, int64_t dim = 0) { return cat(std::span<const Tensor>(l.begin(), l.size()), dim); }
  static Tensor stack(std::initializer_list<Tensor> l, int64_t dim = 0) { return stack(std::span<const Tensor>(l.begin(), l.size()), dim); }
  Tensor repeat(const IntList& repeats) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor roll(const IntList& shifts, const std::optional<IntList>& dims = {}) const;
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
  Tensor diag() const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor triu(int64_t diagonal = 0) const;
  Tensor tril(int64_t diagonal = 0) const;

  // ---- indexing: NumPy's rules; an index tensor's values out of range read 0
  Tensor get(std::span<const Index> indices) const;
  Tensor get(std::initializer_list<Index> indices) const;
  Tensor operator[](const Index& index) const;
  Tensor& set(std::span<const Index> indices, const Tensor& value);
  Tensor& set(std::initializer_list<Index> indices, const Tensor& value);
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce = "") const;
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce, bool include_self = true) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  /// Without size the number of results is read from the data at once.
  Tensor masked_select(const Tensor& mask, std::optional<int64_t> size = {}, const Tensor& fill_value = 0) const;
  Tensor nonzero(std::optional<int64_t> size = {}, const Tensor& fill_value = 0) const;
  /// The different values in order; where each element of this tensor is among them (int32, this shape); how often each
  /// occurs (int32). Every NaN is a value of its own. The data is read at once.
  std::vector<Tensor> unique() const;
  Tensor one_hot(int64_t num_classes) const;

  // ---- elementwise, unary
  Tensor neg() const;
  Tensor logical_not() const;
  Tensor bitwise_not() const;
  Tensor reciprocal() const;
  Tensor trunc() const;
  Tensor ceil() const;
  Tensor floor() const;
  Tensor round() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor square() const;
  Tensor sign() const;
  Tensor abs() const;
  Tensor exp() const;
  Tensor exp2() const;
  Tensor log() const;
  Tensor log2() const;
  Tensor log10() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tan() const;
  Tensor asin() const;
  Tensor acos() const;
  Tensor atan() const;
  Tensor sinh() const;
  Tensor cosh() const;
  Tensor tanh() const;
  Tensor asinh() const;
  Tensor acosh() const;
  Tensor atanh() const;
  Tensor erf() const;
  Tensor isnan() const;
  Tensor isinf(bool detect_positive = true, bool detect_negative = true) const;
  Tensor isfinite() const;
  Tensor relu() const;
  Tensor relu6() const;
  Tensor sigmoid() const;
  Tensor logsigmoid() const;
  Tensor hardsigmoid(double alpha = 1.0 / 6, double beta = 0.5) const;
  Tensor hardswish() const;
  Tensor hardtanh(double min_val = -1, double max_val = 1) const;
  Tensor leaky_relu(double neg_slope = 0.01) const;
  Tensor elu(double alpha = 1.0) const;
  Tensor celu(double alpha = 1.0) const;
  Tensor selu(double alpha = 1.67326, double gamma = 1.0507) const;
  Tensor gelu(std::string_view approximate = "tanh") const;  ///< "tanh" or "none"
  Tensor quick_gelu() const;
  Tensor swish() const;
  Tensor silu() const { return swish(); }
  Tensor softplus(double beta = 1.0) const;
  Tensor softsign() const;
  Tensor mish() const;
  Tensor clamp(const std::optional<Tensor>& min, const std::optional<Tensor>& max) const;
  Tensor clip(const std::optional<Tensor>& min, const std::optional<Tensor>& max) const { return clamp(min, max); }

  // ---- elementwise, binary; shapes broadcast, dtypes promote
  Tensor add(const Tensor& x) const;
  Tensor sub(const Tensor& x) const;
  Tensor mul(const Tensor& x) const;
  Tensor div(const Tensor& x, std::string_view rounding_mode = "") const;  ///< "", "trunc" or "floor"
  Tensor floordiv(const Tensor& x) const;
  Tensor mod(const Tensor& x) const;
  Tensor fmod(const Tensor& x) const;
  Tensor pow(const Tensor& x) const;
  Tensor maximum(const Tensor& x) const;
  Tensor minimum(const Tensor& x) const;
  Tensor bitwise_and(const Tensor& x) const;
  Tensor bitwise_or(const Tensor& x) const;
  Tensor bitwise_xor(const Tensor& x) const;
  Tensor lshift(const Tensor& x) const;
  Tensor rshift(const Tensor& x) const;
  Tensor lt(const Tensor& x) const;
  Tensor gt(const Tensor& x) const;
  Tensor le(const Tensor& x) const;
  Tensor ge(const Tensor& x) const;
  Tensor eq(const Tensor& x) const;
  Tensor ne(const Tensor& x) const;
  Tensor copysign(const Tensor& other) const;
  Tensor logaddexp(const Tensor& other) const;
  Tensor isclose(const Tensor& other, const CloseOptions& o = {}) const;
  Tensor allclose(const Tensor& other, const CloseOptions& o = {}) const;
  Tensor lerp(const Tensor& end, const Tensor& weight) const;
  Tensor where(const Tensor& x, const Tensor& y) const;  ///< this is the bool condition
  Tensor threefry(const Tensor& seed) const;

  // ---- reductions
  Tensor sum(const Axes& axis = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor prod(const Axes& axis = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor max(const Axes& axis = {}, bool keepdim = false) const;
  Tensor min(const Axes& axis = {}, bool keepdim = false) const;
  Tensor any(const Axes& axis = {}, bool keepdim = false) const;
  Tensor all(const Axes& axis = {}, bool keepdim = false) const;
  Tensor mean(const Axes& axis = {}, bool keepdim = false) const;
  Tensor var(const Axes& axis = {}, bool keepdim = false, double correction = 1) const;
  Tensor std(const Axes& axis = {}, bool keepdim = false, double correction = 1) const;
  std::pair<Tensor, Tensor> var_mean(const Axes& axis = {}, bool keepdim = false, double correction = 1) const;
  std::pair<Tensor, Tensor> std_mean(const Axes& axis = {}, bool keepdim = false, double correction = 1) const;
  Tensor argmax(std::optional<int64_t> axis = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> axis = {}, bool keepdim = false) const;
  Tensor normalize(double p = 2.0, int64_t dim = 1, double eps = 1e-12) const;
  Tensor logsumexp(const Axes& axis = {}, bool keepdim = false) const;
  Tensor softmax(int64_t axis = -1, std::optional<DType> dtype = {}) const;
  Tensor log_softmax(int64_t axis = -1, std::optional<DType> dtype = {}) const;
  Tensor softmin(int64_t axis = -1, std::optional<DType> dtype = {}) const;
  Tensor cumsum(int64_t axis = 0) const;
  Tensor cumprod(int64_t axis) const;
  std::pair<Tensor, Tensor> cummax(int64_t axis = 0) const;
  std::pair<Tensor, Tensor> cummin(int64_t axis = 0) const;
  Tensor logcumsumexp(int64_t axis = 0) const;
  std::pair<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false) const;
  Tensor argsort(int64_t dim = -1, bool descending = false) const;
  std::pair<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true) const;

  // ---- linear algebra
  Tensor dot(const Tensor& w, std::optional<DType> dtype = {}) const;
  Tensor matmul(const Tensor& x, std::optional<DType> dtype = {}) const { return dot(x, dtype); }
  static Tensor einsum(std::string_view formula, std::span<const Tensor> operands, std::optional<DType> dtype = {});
  static Tensor einsum(std::string_view formula, std::initializer_list<Tensor> l) {
    return einsum(formula, std::span<const Tensor>(l.begin(), l.size()));
  }
  std::pair<Tensor, Tensor> qr() const;
  std::vector<Tensor> svd(bool full_matrices = true) const;
  /// Keccak of the bytes along the last axis, as uint8: "sha3_224", "sha3_256", "shake_128" (16 bytes), or the rate in
  /// bytes and the suffix, which give (200 - rate) / 2 bytes. errors: Key, Value; Index for a tensor without axes
  Tensor keccak(std::string_view cfg = "sha3_256") const;
  Tensor keccak(int64_t rate, int64_t suffix) const;
  /// 16 bytes from all bytes: a tree of shake_128 over pieces of 4096 bytes and 1 MiB.
  Tensor hash() const;
  Tensor newton_schulz(int64_t steps, std::span<const double> params, double eps = 1e-7) const;

  // ---- networks
  Tensor linear(const Tensor& weight, const Tensor& bias = {}, std::optional<DType> dtype = {}) const;
  Tensor conv2d(const Tensor& weight, const ConvOptions& o = {}) const { return conv2d(weight, Tensor(), o); }
  Tensor conv2d(const Tensor& weight, const Tensor& bias, const ConvOptions& o = {}) const;
  Tensor conv_transpose2d(const Tensor& weight, const Tensor& bias = {}, const ConvTransposeOptions& o = {}) const;
  Tensor avg_pool2d(const PoolOptions& o = {}) const;
  Tensor max_pool2d(const PoolOptions& o = {}) const;
  std::pair<Tensor, Tensor> max_pool2d_indices(const PoolOptions& o = {}) const;
  Tensor max_unpool2d(const Tensor& indices, const PoolOptions& o = {}, const std::optional<IntList>& output_size = {}) const;
  Tensor interpolate(const IntList& size, std::string_view mode = "linear", bool align_corners = false) const;
  Tensor layernorm(const IntList& axis = -1, double eps = 1e-5) const;
  Tensor batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& invstd, const IntList& axis = 1) const;
  Tensor scaled_dot_product_attention(const Tensor& key, const Tensor& value, const AttentionOptions& o = {}) const;

  // ---- losses; reduction is "mean", "sum" or "none"
  Tensor binary_crossentropy(const Tensor& y, std::string_view reduction = "mean") const;
  Tensor binary_crossentropy_logits(const Tensor& y, std::string_view reduction = "mean", const Tensor& pos_weight = {}) const;
  Tensor sparse_categorical_crossentropy(const Tensor& y, int64_t ignore_index = -1, double label_smoothing = 0.0,
                                         std::string_view reduction = "mean") const;
  Tensor cross_entropy(const Tensor& y, std::string_view reduction = "mean", double label_smoothing = 0.0) const;
  Tensor nll_loss(const Tensor& y, const Tensor& weight = {}, std::optional<int64_t> ignore_index = {}, std::string_view reduction = "mean") const;

  // ---- compound assignment changes the memory of this tensor, as assign does
  Tensor& operator+=(const Tensor& x) { return assign(add(x)); }
  Tensor& operator-=(const Tensor& x) { return assign(sub(x)); }
  Tensor& operator*=(const Tensor& x) { return assign(mul(x)); }
  Tensor& operator/=(const Tensor& x) { return assign(div(x)); }

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  Tensor& set_view(const Tensor& view, const Tensor& value);
  template <class T> static Tensor scalar(T v) {
    if constexpr (std::is_same_v<T, bool>) return constant_int(v, DType::Bool);
    if constexpr (std::is_same_v<T, uint64_t>) return weak_uint(v);
    return constant_int(static_cast<int64_t>(v), DType::WeakInt);
  }
  Tensor moved(const UOp& value, const Tensor& grad) const;
  void write_file(const UOp& value);
  Tensor& become(const Tensor& x);
  static Tensor weak_uint(uint64_t v);  // a uint64 when it does not fit into int64
  static Tensor weak_float(double v);
  std::shared_ptr<Impl> impl_;
};

inline Tensor operator-(const Tensor& a) { return a.neg(); }
inline Tensor operator~(const Tensor& a) { return a.bitwise_not(); }
inline Tensor operator!(const Tensor& a) { return a.logical_not(); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return a.add(b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return a.sub(b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return a.mul(b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return a.div(b); }
inline Tensor operator%(const Tensor& a, const Tensor& b) { return a.mod(b); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return a.bitwise_and(b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return a.bitwise_or(b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return a.bitwise_xor(b); }
inline Tensor operator<<(const Tensor& a, const Tensor& b) { return a.lshift(b); }
inline Tensor operator>>(const Tensor& a, const Tensor& b) { return a.rshift(b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return a.lt(b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return a.gt(b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return a.le(b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return a.ge(b); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return a.eq(b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return a.ne(b); }

/// Part of an axis, as Python's slice: absent bounds are the ends, a negative step goes backwards.
struct Slice {
  std::optional<Sint> start = {};
  std::optional<Sint> stop = {};
  std::optional<int64_t> step = {};
};
struct EllipsisType {};
struct NewAxisType {};
inline constexpr EllipsisType Ellipsis{};
inline constexpr NewAxisType NewAxis{};

/// One entry between the brackets of an index.
class Index {
 public:
  enum class Kind : uint8_t { Integer, Range, Dots, Axis, Values };
  Index(int v) : kind_(Kind::Integer), int_(v) {}
  Index(int64_t v) : kind_(Kind::Integer), int_(v) {}
  Index(const UOp& v) : kind_(Kind::Integer), int_(v) {}
  Index(const Slice& s) : kind_(Kind::Range), slice_(s) {}
  Index(EllipsisType) : kind_(Kind::Dots) {}
  Index(NewAxisType) : kind_(Kind::Axis) {}
  Index(const Tensor& t) : kind_(Kind::Values), tensor_(t) {}
  Kind kind() const { return kind_; }
  const Sint& as_int() const { return int_; }
  const Slice& as_slice() const { return slice_; }
  const Tensor& as_tensor() const { return tensor_; }

 private:
  Kind kind_;
  Sint int_ = 0;
  Slice slice_;
  Tensor tensor_;
};

/// What the flags say: DEFAULT_FLOAT, DEFAULT_INT, SUM_DTYPE. errors: Value for a dtype of another kind.
DType default_float();
DType default_int();

/// What `function` gives: outputs of a traced body as one CALL. `inputs` are replaced by parameters in the graph of
/// `outputs`, so that equal bodies over other inputs are one node.
/// errors: Runtime when the body depends on other buffers and `allow_implicit` is false
/// `gradient` is an id of register_gradient, or 0 for the derivative of the body, or kRecompute for that of a checkpoint;
/// with kPrecompile a call is computed by itself, from memory to memory, with kPrecompileBoth its derivative too.
std::vector<Tensor> make_call(std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool allow_implicit, int64_t gradient = 0);
constexpr int64_t kRecompute = -1, kPrecompile = -2, kPrecompileBoth = -3;

/// A gradient of a function by its maker: from those of the outputs (zeros where none arrives) and the inputs to those
/// of the inputs; an undefined tensor, or one too few, passes none. Registered for the life of the process.
using GradientFn = std::function<std::vector<Tensor>(std::span<const Tensor> out_grads, std::span<const Tensor> inputs)>;
int64_t register_gradient(GradientFn fn);

}  // namespace whit
