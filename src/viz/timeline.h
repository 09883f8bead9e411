// The timeline of a process as a file in Chrome's trace format (Trace Event Format, JSON object form).
#pragma once
#include <string>

namespace whit {

/// What is written at exit, to the flag PROFILE_PATH. errors: Io
void write_timeline(const std::string& path);

}  // namespace whit
