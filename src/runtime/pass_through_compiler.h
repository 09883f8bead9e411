// The compiler of devices that run no machine code: the binary is the source.
#pragma once
#include "runtime/compiler.h"

namespace whit {

class PassThroughCompiler : public Compiler {
 public:
  using Compiler::Compiler;
  std::string compile(const std::string&, const std::string& source) override { return source; }
  std::string disassemble(const std::string& library) override { return library; }
};

}  // namespace whit
