#include "whit/jit.h"

#include "base/flags.h"
#include "engine/jit.h"
#include "tensor/impl.h"

namespace whit {
namespace {

// What must stay the same from call to call.
struct Signature {
  Shape shape;
  DType dtype;
  uint16_t device;
};

std::string describe(const Shape& shape, DType dtype, uint16_t device) {
  return fmt::format("{} of {} on {}", name(dtype), shape.str(), device_name(device));
}

// The inputs in memory, as BUFFERs below RESHAPEs. A view of part of a buffer is copied: the graph reads whole ones.
std::vector<UOp> in_memory(std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    WHIT_USER(t.defined() && t.device() && !is_weak(t.dtype()), Jit,
              "[jit] input {} is a constant without memory; pass a tensor on a device (clone() makes one)", i);
  }
  Tensor::realize_all(inputs);
  std::vector<UOp> out;
  for (const Tensor& t : inputs) {
    UOp u = t.uop(), base = u;
    while (base.op() == Op::Reshape) base = base.src(0);
    if (base.op() != Op::Buffer) u = t.contiguous().realize().uop();
    out.push_back(std::move(u));
  }
  return out;
}

Tensor from_memory(UOp view) {
  UOp base = view;
  while (base.op() == Op::Reshape) base = base.src(0);
  return detail::wrap_storage(base, view.shape());
}

}  // namespace

struct TinyJit::Captured {
  std::unique_ptr<engine::CapturedGraph> graph;
  std::vector<Signature> inputs;
};

TinyJit::TinyJit(Body body) : body_(std::move(body)) {}
TinyJit::~TinyJit() = default;

void TinyJit::reset() {
  captured_.reset();
  cnt_ = 0;
}

int64_t TinyJit::n_kernels() const { return captured_ ? captured_->graph->n_kernels() : 0; }

std::vector<Tensor> TinyJit::call(std::span<const Tensor> inputs, const Body& body) {
  if (captured_ && flag::JIT()) {
    const auto& want = captured_->inputs;
    WHIT_USER(inputs.size() == want.size(), Jit, "[jit] {} input tensors; captured with {}", inputs.size(),
              want.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& t = inputs[i];
      WHIT_USER(t.defined(), Jit, "[jit] input {} is undefined", i);
      const uint16_t device = device_id(t.device().value_or(""));
      WHIT_USER(t.shape() == want[i].shape && t.dtype() == want[i].dtype && device == want[i].device, Jit,
                "[jit] input {} is {}; captured with {}", i, describe(t.shape(), t.dtype(), device),
                describe(want[i].shape, want[i].dtype, want[i].device));
    }
    const std::vector<UOp> done = captured_->graph->replay(in_memory(inputs));
    std::vector<Tensor> out;
    out.reserve(done.size());
    for (const UOp& u : done) out.push_back(from_memory(u));
    ++cnt_;
    return out;
  }
  if (cnt_ == 0 || !flag::JIT()) {
    std::vector<Tensor> out = body(inputs);
    Tensor::realize_all(out);
    ++cnt_;
    return out;
  }
  WHIT_USER(!engine::is_capturing(), Runtime,
            "[jit] a function with a jit of its own was called while another one is captured");
  auto fresh = std::make_unique<Captured>();
  const std::vector<UOp> in = in_memory(inputs);
  for (const UOp& u : in) fresh->inputs.push_back({u.shape(), u.dtype(), u->device});
  std::vector<Tensor> out;
  std::vector<UOp> results;
  {
    engine::Capture capture(in);
    out = body(inputs);
    Tensor::realize_all(out);
    for (const Tensor& t : out) {
      WHIT_USER(t.device() && !is_weak(t.dtype()), Jit,
                "[jit] a result is a constant without memory; return tensors that are computed on a device");
      UOp u = t.uop(), base = u;
      while (base.op() == Op::Reshape) base = base.src(0);
      if (base.op() != Op::Buffer) u = t.contiguous().realize().uop();
      results.push_back(u);
    }
    fresh->graph = capture.finish(results);
  }
  captured_ = std::move(fresh);
  ++cnt_;
  return out;
}

}  // namespace whit
