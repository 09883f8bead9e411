// The text of the error that a call raises.
#pragma once
#include <string>
#include <utility>

#include "base/error.h"

namespace whit {

template <class F> std::string error_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace whit
