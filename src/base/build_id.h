// Which build of whit this is.
#pragma once
#include <string>

namespace whit {

/// A digest of the linked code, in hex, as the linker has put it there: caches of what the code computes hang on it.
/// "" when the linker did not.
const std::string& build_id();

}  // namespace whit
