// The handle: what a tensor is, its memory, reading and writing it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>

#include "base/flags.h"
#include "base/os.h"
#include "base/profile.h"
#include "base/text.h"
#include "engine/buffers.h"
#include "engine/jit.h"
#include "engine/ranges.h"
#include "engine/realize.h"
#include "ir/eval.h"
#include "rules/batch.h"
#include "runtime/buffer.h"
#include "runtime/device.h"
#include "schedule/multi.h"
#include "tensor/impl.h"
#include "whit/transform.h"

namespace whit {
namespace {

struct LiveList {
  std::mutex mutex;
  Tensor::Impl* first = nullptr;
};
LiveList& live_list() {
  static LiveList* const list = new LiveList;  // tensors may outlive static destructors
  return *list;
}

DType dtype_flag(const char* flag_name, const std::string& text, bool want_float) {
  const DType dt = dtype_by_name(text);
  WHIT_USER((want_float ? is_float(dt) : is_int(dt)) && !is_weak(dt), Value, "{} is {}; expected {} dtype", flag_name, text,
            want_float ? "a float" : "an integer");
  return dt;
}

// Memory of the host, aligned as kernels want it.
std::shared_ptr<uint8_t> host_memory(size_t n) {
  constexpr std::align_val_t align{64};
  return {static_cast<uint8_t*>(::operator new(n ? n : 1, align)), [=](uint8_t* p) { ::operator delete(p, align); }};
}

// A BUFFER of host memory as device `device` sees it.
UOp host_buffer(DType dtype, int64_t n_elems, std::shared_ptr<void> memory, const std::string& device) {
  const std::string kind = device_kind_of(device);
  const std::string home = !is_multi(device_id(device)) && (kind == "CPU" || kind == "REF") ? device : "CPU";
  UOp b = buffer(dtype, n_elems, home);
  BufferSpec spec;
  spec.external_ptr = memory.get();
  spec.is_shared = false;
  const BufferPtr seen = engine::make_buffer(dtype, n_elems, home, spec);
  set_payload(b, {seen.get(), [seen, memory = std::move(memory)](void*) {}});
  return home == device ? b : UOp::make(Op::Copy, dtype, {b}, Arg(std::string_view(device)));
}

}  // namespace

DType default_float() {
  const std::string& text = flag::DEFAULT_FLOAT();
  return text == "float32" ? DType::Float32 : dtype_flag("DEFAULT_FLOAT", text, true);
}
DType default_int() {
  const std::string& text = flag::DEFAULT_INT();
  return text == "int32" ? DType::Int32 : dtype_flag("DEFAULT_INT", text, false);
}

// ---- Impl

Tensor::Impl::Impl(UOp v, std::shared_ptr<Storage> s) : value(std::move(v)), storage(std::move(s)) {
  if (is_profiling()) note_build();
  if (!storage) next_generation();
  LiveList& l = live_list();
  const std::lock_guard lock(l.mutex);
  next = l.first;
  if (next) next->prev = this;
  l.first = this;
}
Tensor::Impl::~Impl() {
  LiveList& l = live_list();
  const std::lock_guard lock(l.mutex);
  (prev ? prev->next : l.first) = next;
  if (next) next->prev = prev;
}

namespace detail {

std::vector<Tensor> live_tensors() {
  std::vector<Tensor> out;
  LiveList& l = live_list();
  const std::lock_guard lock(l.mutex);
  for (Tensor::Impl* i = l.first; i; i = i->next)
    if (std::shared_ptr<Tensor::Impl> alive = i->weak_from_this().lock()) out.emplace_back(std::move(alive));
  return out;
}

std::string_view device_of(const UOp& x) { return device_name(x->device); }
std::string default_device_name() { return default_device(); }
std::string canonical_name(const std::string& device) {
  if (device.empty()) return default_device_name();
  if (!is_multi(device_id(device))) return canonical_device(device);
  std::string all;
  std::set<std::string> seen;
  for (const uint16_t d : devices_of(device_id(device))) {
    const std::string one = canonical_device(device_name(d));
    WHIT_USER(seen.insert(one).second, Value, "[device] {} is named twice in {}", one, device);
    all += (all.empty() ? "" : ",") + one;
  }
  return all;
}

const Tensor& must_be_defined(const char* op, const Tensor& x) {
  WHIT_USER(x.defined(), Type, "[{}] the tensor is undefined", op);
  return x;
}

UOp fresh_buffer(DType dtype, int64_t n_elems, std::string_view device) {
  WHIT_USER(!is_weak(dtype), Runtime, "[storage] {} has no width, so it cannot be stored", dtype);
  UOp b = buffer(dtype, n_elems, device);
  for (const UOp& part : buffer_parts(b)) engine::buffer_of(part);
  return b;
}

Tensor memory_tensor(const UOp& view) {
  const UOp base(engine::memory_of(view.node()));
  UOp chain = substitute(view, {{base.node(), storage_param(base.dtype(), base.shape()[0])}});
  return Tensor(std::make_shared<Tensor::Impl>(std::move(chain), std::make_shared<Storage>(base)));
}

void must_run_kernels(std::string_view device) {
  WHIT_USER(!is_file(device), Runtime, "[storage] {} is no place for new values; assign to Tensor.empty there, or use to()", device);
}
std::optional<std::string> home_of(const Tensor& x) {
  const auto device = x.device();
  return device && is_file(*device) ? std::nullopt : device;
}

Tensor fresh_tensor(DType dtype, const Shape& shape, std::string_view device, int64_t axis) {
  const auto n_parts = axis < 0 ? 1 : static_cast<int64_t>(devices_of(device_id(device)).size());
  return memory_tensor(view_of_parts(fresh_buffer(dtype, shape.numel() / n_parts, device), shape, axis));
}

Tensor stored(const UOp& x, std::string_view device, int64_t axis) {
  must_run_kernels(device);
  const UOp value = cast_value(x, strong_of(x.dtype()));
  Tensor out = fresh_tensor(value.dtype(), x.shape(), device, axis);
  if (x.shape().numel() == 0) return out;
  out.impl()->storage->store(out.impl()->value, on_device(value, device));
  return out;
}

UOp on_device(const UOp& x, std::string_view device) {
  if (!x->device || device_of(x) == device) return x;
  return UOp::make(Op::Copy, x.dtype(), {x}, Arg(device));
}

}  // namespace detail

using namespace detail;

// ---- constants and data

Tensor::Tensor(const UOp& value) : impl_(std::make_shared<Impl>(value)) {}
Tensor Tensor::constant(double v, DType dtype) { return wrap(whit::constant(dtype, v)); }
Tensor Tensor::constant_int(int64_t v, DType dtype) { return wrap(whit::constant(dtype, v)); }
Tensor Tensor::weak_float(double v) { return wrap(whit::constant(DType::WeakFloat, v)); }
Tensor Tensor::weak_uint(uint64_t v) {
  const bool fits = v <= static_cast<uint64_t>(INT64_MAX);
  return constant_int(static_cast<int64_t>(v), fits ? DType::WeakInt : DType::UInt64);
}

Tensor detail::from_host(DType dtype, const IntList& shape, const TensorOptions& o, const FillFn& fill) {
  WHIT_USER(!is_weak(dtype) && dtype != DType::Void, Runtime, "[tensor] {} has no layout in memory", name(dtype));
  for (const int64_t d : shape) WHIT_USER(d >= 0, Value, "[tensor] negative size in shape {}", dims_str(shape));
  const std::string device = canonical_name(o.device.value_or(""));
  must_run_kernels(device);
  const int64_t n = detail::prod(shape);
  const size_t n_data = static_cast<size_t>(n * n_bytes(dtype));
  auto memory = host_memory(n_data);
  if (n_data) fill({memory.get(), n_data});
  const UOp flat = host_buffer(dtype, n, std::move(memory), device);
  Tensor t = flat.op() == Op::Buffer ? memory_tensor(shaped(flat, shape)) : wrap(shaped(flat, shape));
  return o.dtype ? t.cast(*o.dtype) : t;
}

Tensor Tensor::from_bytes(const void* data, DType dtype, const IntList& shape, const TensorOptions& o) {
  return from_host(dtype, shape, o, [&](std::span<uint8_t> out) { std::memcpy(out.data(), data, out.size()); });
}

Tensor Tensor::from_blob(void* ptr, const IntList& shape, const TensorOptions& o) {
  const std::string device = canonical_name(o.device.value_or(""));
  WHIT_USER(ptr, Value, "[from_blob] the pointer is null");
  WHIT_USER(!is_multi(device_id(device)), Value, "[from_blob] memory of one device for {}; shard() what it gives", device);
  for (const int64_t d : shape) WHIT_USER(d >= 0, Value, "[from_blob] negative size in shape {}", dims_str(shape));
  const DType dtype = o.dtype.value_or(default_float());
  const int64_t n = detail::prod(shape);
  UOp b = buffer(dtype, n, device);
  BufferSpec spec;
  spec.external_ptr = ptr;
  set_payload(b, engine::make_buffer(dtype, n, device, spec));
  return memory_tensor(shaped(b, shape));
}

// ---- what it is

UOp Tensor::uop() const { return must_be_defined("tensor", *this).impl_->uop(); }
const Shape& Tensor::shape() const { return must_be_defined("shape", *this).impl_->value.shape(); }
DType Tensor::dtype() const { return must_be_defined("dtype", *this).impl_->value.dtype(); }
int64_t Tensor::size(int64_t dim) const { return size_of(shape(), must_have_axis("size", dim, shape())).number(); }
std::optional<std::string> Tensor::device() const {
  const UOp& u = impl_->state();
  return u->device ? std::optional<std::string>(device_of(u)) : std::nullopt;
}
std::vector<std::string> Tensor::devices() const {
  std::vector<std::string> out;
  if (const auto all = device())
    for (const uint16_t d : devices_of(device_id(*all))) out.emplace_back(device_name(d));
  return out;
}
int64_t Tensor::element_size() const { return n_bytes(dtype()); }
bool Tensor::is_param() const { return impl_->is_param; }
Tensor& Tensor::is_param_(bool is_param) {
  impl_->is_param = is_param;
  return *this;
}
Tensor Tensor::grad() const {
  Impl& i = *must_be_defined("grad", *this).impl_;
  WHIT_USER(i.grad_use != Impl::GradUse::LeftOut, Jit,
            "[grad] the gradient of this tensor of shape {} was left out by a captured function: it is an input, or nobody had read its gradient "
            "when a store overwrote what that depends on; return it from the function, read it there before that store (a step of an "
            "optimiser), or set it to None",
            shape());
  i.grad_use = Impl::GradUse::Wanted;
  return i.grad;
}
void Tensor::set_grad(const Tensor& grad) {
  impl_->grad = grad;
  impl_->grad_use = Impl::GradUse::Wanted;
  impl_->is_cut_off = false;
}
bool Tensor::is_cut_off() const { return must_be_defined("grad", *this).impl_->is_cut_off; }
bool Tensor::is_realized() const { return impl_->storage && impl_->storage->state().op() == Op::Buffer; }

std::string Tensor::repr() const {
  if (!defined()) return "<Tensor undefined>";
  const std::string dev = device().value_or("None");
  return fmt::format("<Tensor <UOp {} {} dtypes.{}> on {} with grad {}>", dev, shape(), info(dtype()).alias, dev,
                     impl_->grad.defined()                       ? impl_->grad.repr()
                     : impl_->grad_use == Impl::GradUse::LeftOut ? "left out"
                                                                 : "None");
}

// ---- running

void Tensor::realize_all(std::span<const Tensor> tensors) {
  std::vector<UOp> roots;
  std::vector<std::shared_ptr<Impl>> owners;
  for (const Tensor& t : tensors) {
    must_be_defined("realize", t);
    Impl& i = *t.impl_;
    const UOp& root = i.state();
    if (!root->device || is_weak(root.dtype()) || root.shape().numel() == 0 || root.op() == Op::Buffer) continue;
    if (is_tracing() && has_tracer(root)) continue;  // computed when the traced function has its arguments
    roots.push_back(root);
    owners.push_back(t.impl_);
  }
  if (roots.empty()) return;
  if (engine::is_capturing()) leave_out_gradients(roots);
  const std::vector<UOp> done = engine::realize(roots);
  for (size_t k = 0; k < done.size(); ++k) {
    const UOp base(engine::memory_of(done[k].node()));
    WHIT_CHECK(base.op() == Op::Buffer && done[k].shape() == roots[k].shape(), "realize gave {} of {} for {}", base.op(), done[k].shape(),
               roots[k].shape());
    Impl& i = *owners[k];
    if (i.storage) {
      i.storage->settle(base);
    } else {
      // Many at once are gradients, of which nobody wants to know; each would walk the whole graph.
      if (is_float(i.value.dtype()) && roots.size() <= 16) engine::remember_origin(base, i.value);
      i.take(*memory_tensor(done[k]).impl_);
    }
  }
}

Tensor& Tensor::realize() {
  realize_all(std::span<const Tensor>(this, 1));
  return *this;
}

std::vector<std::byte> Tensor::bytes() const {
  std::vector<std::byte> out(static_cast<size_t>(numel()) * n_bytes(strong_of(dtype())));
  copy_to(out.data(), out.size());
  return out;
}

void Tensor::copy_to(void* host, size_t n) const {
  WHIT_USER(!shape().is_symbolic(), Assertion, "[data] shape {} is symbolic; shrink it to numbers first", shape());
  const Tensor t = strong(*this);
  const size_t elem = static_cast<size_t>(n_bytes(t.dtype())), want = static_cast<size_t>(t.numel()) * elem;
  WHIT_USER(n == want, Value, "[copy_to] the destination has {} bytes; expected {}", n, want);
  if (n == 0) return;
  WHIT_USER(!engine::is_capturing(), Jit, "[jit] data of a tensor is read while a function is captured");
  if (const auto on = t.devices(); on.size() > 1) {
    const auto is_here = [](const std::string& d) { return !Device::get(d).is_elsewhere(); };
    if (std::ranges::all_of(on, is_here)) return t.to(on[0]).copy_to(host, n);
    // Other processes compute with this one only what all compute: every part. What each has whole is then read at home.
    realize_all(std::span<const Tensor>(&t, 1));
    const auto here = std::ranges::find_if(on, is_here);
    return t.to(here != on.end() && shard_axis(t.uop()) < 0 ? *here : "CPU").copy_to(host, n);
  }
  if (const UOp c = t.impl_->storage ? UOp() : base_const(t.impl_->value)) {
    const Scalar v = scalar_of(c);
    for (int64_t i = 0; i < t.numel(); ++i) write_element(t.dtype(), host, i, v);
    return;
  }
  UOp before, value = t.impl_->value;
  while (value.op() == Op::Reshape) value = value.src(0);
  if (t.impl_->storage && value.op() == Op::Param && t.impl_->storage->state().op() == Op::Buffer) {
    value = t.impl_->storage->state();  // all of a memory: there is no graph to look at
  } else {
    if (t.impl_->storage) realize_all(std::span<const Tensor>(&t, 1));
    before = value = t.uop();
    while (value.op() == Op::Reshape || value.op() == Op::Detach) value = value.src(0);
  }
  if (value.op() != Op::Buffer) {
    const UOp root = before.op() == Op::Contiguous ? before : UOp::make(Op::Contiguous, before.dtype(), {before});
    value = engine::realize(std::span<const UOp>(&root, 1))[0];
    while (value.op() == Op::Reshape) value = value.src(0);
  }
  WHIT_CHECK(value.op() == Op::Buffer, "a read gave {}", value.op());
  engine::buffer_of(value)->copyout(host, static_cast<int64_t>(n));
}

static Scalar only_element(const Tensor& x) {
  WHIT_USER(x.numel() == 1, Assertion, "[item] the tensor has shape {}; expected exactly one element", x.shape());
  return read_element(strong_of(x.dtype()), x.bytes().data(), 0);
}
double Tensor::item() const { return only_element(*this).as_double(); }
int64_t Tensor::item_int() const {
  const Scalar s = only_element(*this);
  return is_float(s.dtype) ? static_cast<int64_t>(s.f) : s.i;
}

template <class Elem> std::vector<Elem> Tensor::to_vector() const {
  const os::IeeeFloats ieee;
  const DType dt = strong_of(dtype());
  const std::vector<std::byte> b = bytes();
  std::vector<Elem> out(static_cast<size_t>(numel()));
  for (size_t i = 0; i < out.size(); ++i) {
    const Scalar s = read_element(dt, b.data(), static_cast<int64_t>(i));
    out[i] = is_float(dt) ? static_cast<Elem>(s.f) : dt == DType::UInt64 ? static_cast<Elem>(static_cast<uint64_t>(s.i)) : static_cast<Elem>(s.i);
  }
  return out;
}
template <class Elem> Tensor Tensor::from(const std::vector<Elem>& data, const IntList& shape, const TensorOptions& o) {
  constexpr DType kSigned[] = {DType::Int8, DType::Int16, DType::Int32, DType::Int64};
  constexpr DType kUnsigned[] = {DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64};
  constexpr size_t width = std::bit_width(sizeof(Elem)) - 1;
  constexpr DType dt = std::is_same_v<Elem, bool>       ? DType::Bool
                       : std::is_floating_point_v<Elem> ? (width == 2 ? DType::Float32 : DType::Float64)
                                                        : (std::is_signed_v<Elem> ? kSigned : kUnsigned)[width];
  WHIT_USER(static_cast<int64_t>(data.size()) == detail::prod(shape), Value, "[tensor] {} elements for shape {}", data.size(), dims_str(shape));
  if constexpr (std::is_same_v<Elem, bool>) {
    std::vector<uint8_t> b(data.begin(), data.end());
    return from_bytes(b.data(), dt, shape, o);
  } else {
    return from_bytes(data.data(), dt, shape, o);
  }
}
#define WHIT_ELEMENT(Elem)                              \
  template std::vector<Elem> Tensor::to_vector() const; \
  template Tensor Tensor::from(const std::vector<Elem>&, const IntList&, const TensorOptions&);
WHIT_ELEMENT(bool)
WHIT_ELEMENT(float)
WHIT_ELEMENT(double)
WHIT_ELEMENT(int8_t)
WHIT_ELEMENT(uint8_t)
WHIT_ELEMENT(int16_t)
WHIT_ELEMENT(uint16_t)
WHIT_ELEMENT(int32_t)
WHIT_ELEMENT(uint32_t)
WHIT_ELEMENT(int64_t)
WHIT_ELEMENT(uint64_t)
#undef WHIT_ELEMENT

// ---- state

Tensor& Tensor::assign(const Tensor& x) {
  must_be_defined("assign", *this);
  must_be_defined("assign", x);
  if (is_same(x)) return *this;
  if (is_weak(dtype())) impl_ = clone().impl_;
  UOp v = x.uop();
  const UOp now = uop();
  if (v == now) return *this;
  WHIT_USER(v.op() != Op::Unshard || now.op() != Op::Unshard || v.arg().int_at(0) == now.arg().int_at(0), Runtime,
            "[assign] the value is cut along axis {}, the target along axis {}", v.arg().int_at(0), now.arg().int_at(0));
  if (is_weak(v.dtype()) && least_upper_dtype(v.dtype(), dtype()) == dtype()) v = cast_value(v, dtype());
  WHIT_USER(v.dtype() == dtype(), Runtime, "[assign] the value is {}, the target is {}", v.dtype(), dtype());
  const auto dev = device();
  const bool to_file = dev && is_file(*dev);
  WHIT_USER(!v->device || !dev || *dev == device_of(v) || to_file, Runtime, "[assign] the value is on {}, the target is on {}", device_of(v), *dev);
  if (!(v.shape() == shape())) {
    bool fits = v.shape().size() <= ndim();
    for (size_t i = 0; fits && i < v.shape().size(); ++i) {
      const Sint have = size_of(v.shape(), v.shape().size() - 1 - i);
      fits = have == Sint(1) || have == size_of(shape(), ndim() - 1 - i);
    }
    WHIT_USER(fits, Value, "[assign] a value of shape {} does not broadcast to {}", v.shape(), shape());
    v = broadcast_to(v, shape());
  }
  if (numel() == 0) return *this;
  if (to_file) {
    write_file(v);
  } else if (impl_->storage) {
    impl_->storage->store(impl_->value, v);
  } else {
    impl_->take(*(dev && !v->device ? stored(v, *dev) : wrap(v)).impl_);
  }
  return *this;
}

// A file has what is assigned at once. What was built from the old content is computed first.
void Tensor::write_file(const UOp& v) {
  WHIT_USER(impl_->storage, Runtime, "[assign] the target was computed from {}; expected the file or a part of it", *device());
  WHIT_USER(!engine::is_capturing() && !has_tracer(v), Jit, "[assign] {} is written at once, so not inside of a function that is captured",
            *device());
  const UOp file = impl_->storage->state();
  std::vector<Tensor> readers;
  for (Tensor& t : live_tensors())
    if (!t.impl_->storage && std::ranges::count(toposort(t.uop()), file.node())) readers.push_back(std::move(t));
  realize_all(readers);
  const std::string here = default_device_name();
  Tensor all = wrap(on_device(v, here));
  BufferPtr part = engine::part_of_memory(uop());
  if (!part) {
    const Tensor value = std::exchange(all, stored(on_device(file, here), here));
    Tensor(std::make_shared<Impl>(impl_->value, all.impl_->storage)).assign(value);
    part = engine::buffer_of(file);
  }
  const std::vector<std::byte> data = all.bytes();
  part->copyin(data.data(), static_cast<int64_t>(data.size()));
}

Tensor& Tensor::replace(const Tensor& x) {
  WHIT_USER(shape() == x.shape(), Assertion, "[replace] the value has shape {}, the target {}", x.shape(), shape());
  impl_->take(*must_be_defined("replace", x).impl_);
  return *this;
}

Tensor Tensor::clone(const std::optional<std::string>& to_device) const {
  const std::string dev = canonical_name(to_device ? *to_device : home_of(*this).value_or(""));
  Tensor out = stored(uop(), dev, to_device ? -1 : shard_axis(uop()));
  out.impl_->is_param = impl_->is_param;
  if (impl_->grad.defined()) out.impl_->grad = impl_->grad.clone(to_device);
  out.impl_->grad_use = impl_->grad_use;
  return out;
}

Tensor Tensor::detach() const {
  return move_view(*this, [](const UOp& u) { return UOp::make(Op::Detach, u.dtype(), {u}); });
}

Tensor Tensor::contiguous() const {
  const UOp u = uop();
  if (is_weak(dtype()) || !u->device || u.op() == Op::Contiguous) return *this;
  const UOp base = u.op() == Op::Reshape ? u.src(0) : u;
  if (base.op() == Op::Buffer || base.op() == Op::After) return *this;
  return wrap(UOp::make(Op::Contiguous, u.dtype(), {u}));
}
Tensor Tensor::contiguous_backward() const { return alu1(Op::ContiguousBackward, *this); }

// Like this, with another value.
Tensor Tensor::moved(const UOp& value, const Tensor& grad) const {
  Tensor out = wrap(value);
  out.impl_->is_param = impl_->is_param;
  out.impl_->grad = grad;
  out.impl_->grad_use = impl_->grad_use;
  return out;
}

Tensor Tensor::to(const std::optional<std::string>& to_device) const {
  const auto here = device();
  const std::string dev = canonical_name(to_device.value_or(""));
  if (!here || *here == dev) return *this;
  if (is_file(dev)) return empty(shape(), {.device = dev, .dtype = dtype()}).assign(*this);
  return moved(on_device(uop(), dev), impl_->grad.defined() ? impl_->grad.to(dev) : Tensor());
}
Tensor& Tensor::become(const Tensor& x) {
  if (x.is_same(*this)) return *this;
  impl_->take(*x.impl_);
  impl_->grad = x.impl_->grad;
  impl_->grad_use = x.impl_->grad_use;
  return *this;
}
Tensor& Tensor::to_(const std::optional<std::string>& to_device) { return become(to(to_device)); }

Tensor Tensor::shard(std::span<const std::string> devices, std::optional<int64_t> axis) const {
  must_be_defined("shard", *this);
  WHIT_USER(this->devices().size() <= 1, Runtime, "[shard] the tensor is on several devices already: {}", *device());
  WHIT_USER(!devices.empty(), Value, "[shard] no device is given; expected at least one");
  if (devices.size() == 1) return to(devices[0]);
  const std::string all = canonical_name(join({devices.begin(), devices.end()}, ","));
  UOp value = UOp::make(Op::Copy, dtype(), {uop()}, Arg(std::string_view(all)));
  if (axis) {
    const int64_t a = resolve_axis("shard", *axis, shape()), n = static_cast<int64_t>(devices.size());
    WHIT_USER(ndim() > 0 && shape()[static_cast<size_t>(a)] % n == 0, Runtime, "[shard] axis {} of shape {} does not divide by {} devices", *axis,
              shape(), n);
    value = unshard(whit::shard(value, a, n), a, n);
  }
  return moved(value, impl_->grad.defined() ? impl_->grad.shard(devices, axis) : Tensor());
}
Tensor& Tensor::shard_(std::span<const std::string> devices, std::optional<int64_t> axis) { return become(shard(devices, axis)); }
Tensor Tensor::shard_like(const Tensor& y) const {
  const auto there = must_be_defined("shard_like", y).device();
  if (!there || !is_multi(device_id(*there))) return to(there);
  const int64_t axis = shard_axis(y.uop());
  return shard(y.devices(), axis < 0 ? std::nullopt : std::optional(axis));
}

}  // namespace whit
