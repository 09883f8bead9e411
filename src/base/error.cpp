#include "base/error.h"

namespace whit {

void raise(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

void raise_internal(const char* file, int line, const char* condition, std::string message) {
  throw Error(ErrorKind::Internal,
              fmt::format("internal error: {} [{} is false at {}:{}]", message, condition, file, line));
}

}  // namespace whit
