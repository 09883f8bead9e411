// Lines for the person in front of the terminal. They go to standard error.
#pragma once
#include <string>
#include <string_view>

namespace whit {

/// Prints a line at once, whole even when several threads print.
void log_line(std::string_view text);
/// Prints a line the first time a `topic` is seen in this process. For things that whit goes on without.
void say_once(const std::string& topic, std::string_view text);
/// What say_once has printed, in order. For tests and for the device table.
std::string said_so_far();

}  // namespace whit
