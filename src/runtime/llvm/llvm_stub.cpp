// Stands in for the LLVM compiler in a build without LLVM.
#include "base/error.h"
#include "runtime/compiler.h"

namespace whit {

std::shared_ptr<Compiler> make_llvm_compiler(const std::string&) { raise(ErrorKind::Device, "[llvm] this build of whit has no LLVM"); }

}  // namespace whit
