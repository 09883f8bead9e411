#include "base/error.h"

#include <fmt/format.h>

// fmt/core.h only declares what the formatters of error.h call.
template auto fmt::formatter<fmt::string_view>::format(const fmt::string_view&, fmt::format_context&) const
    -> decltype(std::declval<fmt::format_context>().out());

namespace whit {

void raise(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

void raise_internal(const char* file, int line, const char* condition, std::string message) {
  throw Error(ErrorKind::Internal, fmt::format("internal error: {} [{} is false at {}:{}]", message, condition, file, line));
}

}  // namespace whit
