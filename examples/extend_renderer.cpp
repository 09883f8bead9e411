// A renderer of one's own: kernels as plain C, a statement a node, for a device that compiles and runs them. It has the ops
// that the program below needs, and says what it lacks. docs/render.md tells how a whole language is made.
#include <cstdio>

#include "ir/build.h"
#include "render/renderer.h"
#include "runtime/device.h"
#include "runtime/host_memory.h"
#include "runtime/program.h"
#include "whit/whit.h"
using namespace whit;

const std::unordered_map<DType, const char*> kTypes = {{DType::Bool, "_Bool"}, {DType::Float32, "float"}, {DType::Int64, "long"}, {DType::Void, ""}};
// {0} {1} {2}: the sources, {t} {v}: the node's type and name, {n}: a PARAM's slot, or where a RANGE ends.
const std::unordered_map<Op, const char*> kText = {
    {Op::Add, "{t} {v} = {0} + {1};\n"},
    {Op::Mul, "{t} {v} = {0} * {1};\n"},
    {Op::Fdiv, "{t} {v} = {0} / {1};\n"},
    {Op::MulAcc, "{t} {v} = __builtin_fmaf({0}, {1}, {2});\n"},
    {Op::Index, "{t}* {v} = {0} + {1};\n"},
    {Op::Load, "{t} {v} = *{0};\n"},
    {Op::Store, "*{0} = {1};\n"},
    {Op::Reg, "{t} {v}[1];\n"},
    {Op::Param, "{t}* restrict {v} = buffers[{n}];\n"},
    {Op::Range, "for (long {v} = {first}; {v} < {n}; ++{v}) {{\n"},
    {Op::EndRange, "}}\n"},
};

std::string render_plain(const UOp& program, std::string_view kernel, const Target&) {
  const auto statement = [](const Node* n, const std::string& v, std::span<const std::string> src) {
    WHIT_USER(kText.contains(n->op) && kTypes.contains(n->dtype), NotImplemented, "[plain] no text for {} of {}", name(n->op), name(n->dtype));
    const bool is_loop = n->op == Op::Range, is_parallel = is_loop && axis_type(n) == AxisType::Global;
    const int64_t number = is_loop ? range_size(n) : n->op == Op::Param ? n->arg.int_at(0) : 0;
    return fmt::format(fmt::runtime(kText.at(n->op)), src[0], src[1], src[2], fmt::arg("t", kTypes.at(n->dtype)), fmt::arg("v", v),
                       fmt::arg("first", is_parallel ? "first" : "0"), fmt::arg("n", is_parallel ? "last" : std::to_string(number)));
  };
  return fmt::format("void {}(void* const* buffers, const long* variables, void* scratch, long first, long last) {{\n{}}}\n", kernel,
                     render_statements(program, statement));
}

int main() {
  register_renderer({"plain", cpu_caps(), render_plain, false});
  register_device(
      std::make_unique<HostKind<PlainDevice<HostAllocator, CpuProgram>>>("PLAIN", "the CPU over plain C", std::vector<std::string>{"PLAIN"}));
  const Tensor x = Tensor::from<float>({1, -2, 3, 4, 5, -6}).reshape({2, 3}).to("PLAIN");
  for (const float v : (x.matmul(x.T()) / 3).to_vector<float>()) std::printf("%.2f ", v);
  std::printf("on %s\n", x.device()->c_str());
}
