#include "render/renderer.h"

#include <deque>
#include <mutex>

#include "base/text.h"
#include "render/program.h"

namespace whit {

namespace render {
std::string render_llvm(const UOp& program, std::string_view kernel_name, const Target& target);
std::string render_c(const UOp& program, std::string_view kernel_name, const Target& target);
}  // namespace render

// Both CPU renderers have the same ops, so that decompose gives both the same program and they agree bit for bit.
Caps cpu_caps() {
  Caps c;
  for (int i = 0; i < kNumOps; ++i)
    if (is_elementwise(static_cast<Op>(i))) c.ops.set(static_cast<size_t>(i));
  for (const Op op : {Op::Exp2, Op::Log2, Op::Sin, Op::FloorDiv, Op::FloorMod, Op::Pow, Op::Threefry}) c.ops.reset(static_cast<size_t>(op));
  c.f64_ops.set(static_cast<size_t>(Op::Pow));  // libm has it to half a unit
  for (const DType dt : {DType::Float32, DType::Float64}) c.arith.set(static_cast<size_t>(dt));
  for (const DType dt : {DType::Float16, DType::Float32, DType::Float64}) c.converts.set(static_cast<size_t>(dt));
  return c;
}

namespace {
std::mutex mutex;
std::deque<Renderer>& renderers() {
  static auto& all = *new std::deque<Renderer>{{"llvm", cpu_caps(), render::render_llvm}, {"c", cpu_caps(), render::render_c}};
  return all;
}
}  // namespace

void register_renderer(Renderer renderer) {
  const std::lock_guard lock(mutex);
  for (const Renderer& r : renderers()) WHIT_USER(r.name != renderer.name, Value, "[renderer] there is a renderer {} already", r.name);
  renderers().push_back(std::move(renderer));
}

std::vector<std::string> renderer_names() {
  const std::lock_guard lock(mutex);
  std::vector<std::string> names;
  for (const Renderer& r : renderers()) names.push_back(r.name);
  return names;
}

std::string render_statements(const UOp& program,
                              const std::function<std::string(const Node*, const std::string&, std::span<const std::string>)>& statement) {
  std::unordered_map<const Node*, std::string> called;
  std::string out;
  for (const Node* n : program.src(1)->src()) {  // a node that is listed again is done again
    if (n->op == Op::Const) continue;
    std::vector<std::string> src;
    for (const Node* s : n->src())
      src.push_back(s->op != Op::Const ? called[s] : is_float(s->dtype) ? fmt::format("{:e}", s->arg.to_double()) : std::to_string(s->arg.to_int()));
    src.resize(std::max<size_t>(src.size(), 3));
    out += statement(n, called[n] = fmt::format("v{}", out.size()), src);
  }
  return out;
}

const Renderer& renderer_by_name(std::string_view name) {
  std::unique_lock lock(mutex);
  for (const Renderer& r : renderers())
    if (name == r.name) return r;
  lock.unlock();
  raise(ErrorKind::Key, "no renderer '{}'; there are {}", name, join(renderer_names(), ", "));
}

KernelSignature signature_of(const UOp& program) { return render::analyze(program).signature; }

}  // namespace whit
