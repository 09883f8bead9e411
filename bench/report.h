// What a benchmark prints: one JSON object a line, read by bench/run.py.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string_view>
#include <vector>

namespace whit::bench {

inline double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// CPU time of all threads of the process (or of this thread): what the work would take on a core of its own.
inline double cpu_s(clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Seconds of each of n calls.
template <class Fn> std::vector<double> times_of(int n, Fn&& fn) {
  std::vector<double> t;
  for (int i = 0; i < n; ++i) {
    const double start = now_s();
    fn();
    t.push_back(now_s() - start);
  }
  return t;
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

inline void report(std::string_view what, std::string_view unit, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  fmt::print("{{\"what\": \"{}\", \"unit\": \"{}\", \"min\": {:.6g}, \"median\": {:.6g}, \"max\": {:.6g}, \"n\": {}}}\n", what, unit, values.front(),
             median(values), values.back(), values.size());
  fflush(stdout);
}
inline void report(std::string_view what, std::string_view unit, double value) { report(what, unit, std::vector<double>{value}); }

}  // namespace whit::bench
