// A renderer of one's own: kernels as plain C, a statement a node, for a device that compiles and runs them. It has the ops
// that the program below needs, and says what it lacks. docs/render.md tells how a whole language is made.
#include <cstdio>
#include <map>

#include "ir/build.h"
#include "render/renderer.h"
#include "runtime/device.h"
#include "runtime/host_memory.h"
#include "runtime/program.h"
#include "whit/whit.h"

namespace whit {
namespace {

const std::map<DType, const char*> kTypes = {{DType::Bool, "_Bool"}, {DType::Float32, "float"}, {DType::Int64, "int64_t"}};
const std::map<Op, const char*> kInfix = {{Op::Add, "+"}, {Op::Sub, "-"}, {Op::Mul, "*"}, {Op::Fdiv, "/"}, {Op::CmpLt, "<"}, {Op::And, "&"}};

std::string render_plain(const UOp& program, std::string_view kernel, const Target&) {
  std::unordered_map<const Node*, std::string> called;
  std::string out = fmt::format(
      "typedef long int64_t;\nvoid {}(void* const* buffers, const int64_t* variables, void* scratch, "
      "int64_t first, int64_t last) {{\n",
      kernel);
  int n_values = 0;
  for (const Node* n : program.src(1)->src()) {  // a node that is listed again is done again
    std::string x[3];
    for (size_t i = 0; i < n->n_src && i < 3; ++i) {
      const UOp s = UOp(n->src()[i]);
      x[i] = !s.is_const() ? called[s.node()] : is_float(s.dtype()) ? fmt::format("{:e}f", s.arg().as_float()) : fmt::format("{}", const_int(s));
    }
    const std::string v = called[n] = fmt::format("v{}", n_values++);
    const auto type = kTypes.find(n->dtype);
    const std::string t = type == kTypes.end() ? "" : type->second;
    switch (n->op) {
      case Op::Const: break;
      case Op::Param: out += fmt::format("{}* restrict {} = buffers[{}];\n", t, v, n->arg.int_at(0)); break;
      case Op::Reg: out += fmt::format("{} {}[1];\n", t, v); break;
      case Op::Index: called[n] = fmt::format("({} + {})", x[0], x[1]); break;
      case Op::Range:
        out += axis_type(n) == AxisType::Global ? fmt::format("for (int64_t {0} = first; {0} < last; ++{0}) {{\n", v)
                                                : fmt::format("for (int64_t {0} = 0; {0} < {1}; ++{0}) {{\n", v, range_size(n));
        break;
      case Op::EndRange: out += "}\n"; break;
      case Op::Load: out += fmt::format("{} {} = *{};\n", t, v, x[0]); break;
      case Op::Store: out += fmt::format("*{} = {};\n", x[0], x[1]); break;
      case Op::Max: out += fmt::format("{0} {1} = {2} > {3} || {2} != {2} ? {2} : {3};\n", t, v, x[0], x[1]); break;
      case Op::Where: out += fmt::format("{} {} = {} ? {} : {};\n", t, v, x[0], x[1], x[2]); break;
      case Op::MulAcc: out += fmt::format("{} {} = __builtin_fmaf({}, {}, {});\n", t, v, x[0], x[1], x[2]); break;
      default:
        WHIT_USER(kInfix.contains(n->op) && !t.empty(), NotImplemented, "[plain] no text for {} of {}", name(n->op), name(n->dtype));
        out += fmt::format("{} {} = {} {} {};\n", t, v, x[0], kInfix.at(n->op), x[1]);
    }
  }
  return out + "}\n";
}

class PlainKind : public DeviceKind {
 public:
  PlainKind() : DeviceKind("PLAIN", "the CPU over plain C") {}
  int count() override { return 1; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget&) override {
    return std::make_unique<PlainDevice<HostAllocator, CpuProgram>>(device_name, "");
  }
  std::vector<std::string> renderers() const override { return {"PLAIN"}; }
  std::shared_ptr<Compiler> make_compiler(const std::string&, const std::string&) override { return make_c_compiler(host_cpu_arch()); }
};

}  // namespace
}  // namespace whit

int main() {
  using namespace whit;
  register_renderer({"plain", cpu_caps(), render_plain, false});
  register_device(std::make_unique<PlainKind>());
  const Tensor x = Tensor::from<float>({1, -2, 3, 4, 5, -6}).reshape({2, 3}).to("PLAIN");
  for (const float v : (x.matmul(x.T()) / 3).relu().to_vector<float>()) std::printf("%.2f ", v);
  std::printf("on %s\n", x.device()->c_str());
}
