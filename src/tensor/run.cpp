// Where tensors meet the engine.
#include "tensor/impl.h"
#if __has_include("engine/realize.h")
#include "engine/realize.h"

namespace whit::detail {
std::vector<UOp> run_values(std::span<const UOp> values) { return engine::realize(values); }
}  // namespace whit::detail
#else
#include <cstring>

#include "ir/interpret.h"
#include "runtime/buffer.h"

namespace whit::detail {
std::vector<UOp> run_values(std::span<const UOp> values) {
  HostInputs in;
  std::vector<std::vector<std::byte> > copies;
  for (const Node* n : toposort(values)) {
    if (n->op != Op::Buffer) continue;
    const UOp b(n);
    copies.emplace_back(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)));
    if (const auto p = payload(b)) {
      Buffer* const mem = static_cast<Buffer*>(p.get());
      if (mem->is_allocated() || mem->spec().external_ptr)
        mem->copyout(copies.back().data(), static_cast<int64_t>(copies.back().size()));
    }
    in.memory[n] = copies.back().data();
  }
  std::vector<UOp> out;
  const std::vector<HostTensor> results = evaluate_tensor(values, in);
  for (size_t i = 0; i < results.size(); ++i) {
    const HostTensor& r = results[i];
    const UOp& v = values[i];
    UOp b = buffer(v.dtype(), v.shape().numel(), v->device ? device_of(v) : "CPU");
    auto mem = Buffer::make(v->device ? std::string(device_of(v)) : "CPU", static_cast<int64_t>(r.bytes.size()));
    mem->copyin(r.bytes.data(), static_cast<int64_t>(r.bytes.size()));
    set_payload(b, mem);
    const UOp view = reshape(b, v.shape());
    set_realized(v, view);
    out.push_back(view);
  }
  return out;
}
}  // namespace whit::detail
#endif
