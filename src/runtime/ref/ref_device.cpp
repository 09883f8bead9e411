// REF: runs kernels by the reference evaluator, slowly and obviously correctly. The binary of a kernel is the text of its graph.
#include "base/os.h"
#include "ir/interpret.h"
#include "ir/text.h"
#include "runtime/device.h"
#include "runtime/host_memory.h"
#include "runtime/pass_through_compiler.h"
#include "runtime/program.h"

namespace whit {
namespace {

class RefProgram : public Program {
 public:
  explicit RefProgram(const KernelObject& object) : Program(object.name, object.n_buffers, object.n_variables), sink_(parse_text(object.library)) {
    for (const Node* n : toposort(sink_))
      if (n->op == Op::Variable) variables_.emplace_back(n->arg.at(0).as_str());
  }
  double run(void* const* buffers, const int64_t* variables, const LaunchSize&, bool wait) override {
    const int64_t start_ns = os::now_ns();
    VariableValues values;
    for (size_t i = 0; i < variables_.size(); ++i) values[variables_[i]] = variables[i];
    evaluate_kernel(sink_, std::span(buffers, static_cast<size_t>(n_buffers)), values);
    return wait ? static_cast<double>(os::now_ns() - start_ns) * 1e-9 : 0;
  }

 private:
  const UOp sink_;
  std::vector<std::string> variables_;  // in the order of their values
};

class RefKind : public HostKind<PlainDevice<HostAllocator, RefProgram>> {
 public:
  RefKind() : HostKind("REF", "the reference evaluator", {"REF"}) {}
  std::shared_ptr<Compiler> make_compiler(const std::string&, const std::string&) override { return std::make_shared<PassThroughCompiler>("ref"); }
  std::string default_arch() override { return ""; }
  bool always_allowed() const override { return true; }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<RefKind>()), true);

}  // namespace
}  // namespace whit
