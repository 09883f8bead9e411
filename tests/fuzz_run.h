// How a fuzzer goes through its seeds. In CI: seeds from 1 on, so many cases or seconds, whichever ends first. With
// WHIT_FUZZ_SECONDS=n: fresh seeds from a printed one on, for n seconds. WHIT_FUZZ_SEED=s begins at s. WHIT_FUZZ_KEEP names a
// file that always holds the seed at hand: who dies leaves it there.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace whit::test {

class FuzzRun {
 public:
  FuzzRun(double seconds_in_ci, int64_t cases_in_ci) : most_(cases_in_ci) {
    const char* const seconds = std::getenv("WHIT_FUZZ_SECONDS");
    const char* const first = std::getenv("WHIT_FUZZ_SEED");
    is_long_ = seconds != nullptr;
    seed_ = first ? std::strtoull(first, nullptr, 10) : is_long_ ? std::random_device()() : 1;
    const std::chrono::duration<double> limit(seconds ? std::strtod(seconds, nullptr) : seconds_in_ci);
    until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
    if (const char* const keep = std::getenv("WHIT_FUZZ_KEEP")) keep_ = std::fopen(keep, "w");
    if (is_long_) std::printf("first seed %llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
  }
  ~FuzzRun() {
    if (keep_) std::fclose(keep_);
  }
  FuzzRun(const FuzzRun&) = delete;
  FuzzRun& operator=(const FuzzRun&) = delete;

  /// True when there is another case: that of seed(). A failure ends the run, but for 9 more of a long one.
  bool next() {
    if (n_ > 0) ++seed_;
    n_failed_ += testing::Test::HasFailure();
    if (Clock::now() >= until_ || (!is_long_ && n_ >= most_) || n_failed_ >= (is_long_ ? 10 : 1)) return false;
    ++n_;
    if (keep_) {
      char text[24];
      const int n = std::snprintf(text, sizeof text, "%-20llu\n", static_cast<unsigned long long>(seed_));
      if (pwrite(fileno(keep_), text, static_cast<size_t>(n), 0) != n) std::abort();
    }
    return true;
  }
  uint64_t seed() const { return seed_; }
  int64_t n() const { return n_; }  ///< cases so far

 private:
  using Clock = std::chrono::steady_clock;
  uint64_t seed_;
  int64_t n_ = 0, n_failed_ = 0, most_;
  bool is_long_;
  Clock::time_point until_;
  std::FILE* keep_ = nullptr;
};

}  // namespace whit::test
