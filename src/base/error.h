// The one exception type of the project. Its kind decides which Python exception a Python user sees.
#pragma once
#include <fmt/core.h>

#include <concepts>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace whit {

/// What went wrong, and whose fault it is. All but `Internal` are the caller's or the machine's doing.
enum class ErrorKind : unsigned char {
  Value,           ///< an argument has a wrong value (Python: ValueError)
  Index,           ///< an axis or index is out of range (IndexError)
  Type,            ///< an argument has a wrong type (TypeError)
  Key,             ///< a name is not there (KeyError)
  Attribute,       ///< an unknown name was asked for (AttributeError)
  Runtime,         ///< any other misuse (RuntimeError)
  Assertion,       ///< a documented precondition of the Python surface (AssertionError)
  Overflow,        ///< a number does not fit (OverflowError)
  ZeroDivision,    ///< a literal divisor is zero (ZeroDivisionError)
  NotImplemented,  ///< a part that whit does not have yet (NotImplementedError)
  Memory,          ///< an allocation failed (MemoryError)
  Io,              ///< a file could not be read or written, or lies about itself (OSError)
  Device,          ///< a device could not be opened or failed (RuntimeError)
  Compile,         ///< a kernel did not compile (CompileError)
  Jit,             ///< a JIT capture or replay cannot serve this (JitError)
  Internal,        ///< a bug in whit (InternalError)
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
  std::string message_;
};

/// Throws Error(kind, text). Out of line, so that a check costs its caller one branch and one call.
[[noreturn]] void raise(ErrorKind kind, std::string message);
template <class... T> [[noreturn]] void raise(ErrorKind kind, fmt::format_string<T...> text, T&&... args) {
  raise(kind, fmt::format(text, std::forward<T>(args)...));
}
/// Throws an Internal error that names the failed condition and its place.
[[noreturn]] void raise_internal(const char* file, int line, const char* condition, std::string message);

}  // namespace whit

/// What has a name() or a str() stands in formatted texts as itself: "[sum] of {} {}", shape, dtype.
template <class T>
  requires requires(const T& v) {
    { name(v) } -> std::same_as<std::string_view>;
  }
struct fmt::formatter<T> : fmt::formatter<std::string_view> {
  auto format(const T& v, auto& context) const { return fmt::formatter<std::string_view>::format(name(v), context); }
};
template <class T>
  requires requires(const T& v) {
    { v.str() } -> std::same_as<std::string>;
  }
struct fmt::formatter<T> : fmt::formatter<std::string_view> {
  auto format(const T& v, auto& context) const { return fmt::formatter<std::string_view>::format(v.str(), context); }
};

/// The caller's mistake: `WHIT_USER(axis < rank, Index, "[sum] axis {} is out of range for rank {}", axis, rank)`.
/// The arguments are evaluated only on failure.
#define WHIT_USER(cond, kind, ...)                                        \
  do {                                                                    \
    if (!(cond)) [[unlikely]]                                             \
      ::whit::raise(::whit::ErrorKind::kind, ::fmt::format(__VA_ARGS__)); \
  } while (0)
/// Our own mistake: an invariant of whit does not hold.
#define WHIT_CHECK(cond, ...)                                                        \
  do {                                                                               \
    if (!(cond)) [[unlikely]]                                                        \
      ::whit::raise_internal(__FILE__, __LINE__, #cond, ::fmt::format(__VA_ARGS__)); \
  } while (0)
