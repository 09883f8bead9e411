// The largest error of each transcendental function in units in the last place (docs/accuracy.md, tests/ops/ulp.h).
//
//   ulp [--all] [--between LO HI] [FUNCTION...]
//
// 16-bit types: every input. float32: 2^22 inputs spread evenly over all bits, with --all every one, with
// --between every one from LO to HI (of one sign) and nothing else. float64: 2^21. "inf" means a NaN or an infinity in
// the wrong place. Exit status 1 when a function misses its limit.
#include "ops/ulp.h"

#include <cstdio>
#include <cstdlib>

namespace whit {
namespace {

using namespace ulp;

// False when the limit is missed.
bool print(const Function& f, DType dtype, const Result& r) {
  const double limit = f.limits[dtype == DType::Float16 ? 0 : dtype == DType::BFloat16 ? 1 : dtype == DType::Float32 ? 2 : 3];
  const bool good = limit == 0 || r.max_ulp <= limit;
  std::printf("| %s | %s | %lld | %.3f | %a | %.3f |%s\n", f.name, std::string(name(dtype)).c_str(), static_cast<long long>(r.n), r.max_ulp, r.at,
              r.sum_ulp / static_cast<double>(r.n), good ? "" : " over the limit");
  std::fflush(stdout);
  return good;
}

}  // namespace
}  // namespace whit

int main(int argc, char** argv) {
  using namespace whit;
  bool all = false;
  uint64_t first_bits = 0, last_bits = 0;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--all") {
      all = true;
    } else if (arg == "--between" && i + 2 < argc) {
      uint64_t ends[2] = {0, 0};
      for (uint64_t& e : ends) write_element(DType::Float32, &e, 0, Scalar::of(DType::Float32, std::atof(argv[++i])));
      first_bits = std::min(ends[0], ends[1]);
      last_bits = std::max(ends[0], ends[1]);
    } else {
      wanted.push_back(arg);
    }
  }
  bool good = true;
  std::printf("| function | dtype | inputs | max ULP | at | mean ULP |\n|---|---|---|---|---|---|\n");
  for (const Function& f : kFunctions) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), f.name) == wanted.end()) continue;
    if (last_bits) {
      const auto n = static_cast<int64_t>(last_bits - first_bits + 1);
      good &= print(f, DType::Float32, measure(f, DType::Float32, n, true, first_bits));
      continue;
    }
    for (const DType dt : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64}) {
      const bool every = n_bytes(dt) == 2 || (all && dt == DType::Float32);
      const int64_t n = every ? int64_t{1} << (8 * n_bytes(dt)) : dt == DType::Float64 ? 1 << 21 : 1 << 22;
      good &= print(f, dt, measure(f, dt, n, every));
    }
  }
  return good ? 0 : 1;
}
