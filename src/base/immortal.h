// Objects of the process that are never destroyed: other static objects use them until the last one is gone.
#pragma once

namespace whit {

/// The one T, made at the first call.
template <class T> T& immortal() {
  static T& one = *new T();
  return one;
}

}  // namespace whit
