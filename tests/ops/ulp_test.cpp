// Elementwise functions keep the limits of ulp.h: every float16 and bfloat16, float32 and float64 in samples that are
// dense in the _all test. `bench/ulp --all` takes every float32.
#include "ops/ulp.h"

#include <gtest/gtest.h>

namespace whit::ulp {
namespace {

void keep_limits(int64_t n_float32, int64_t n_float64) {
  constexpr DType kDTypes[] = {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64};
  for (const Function& f : kFunctions)
    for (size_t d = 0; d < std::size(kDTypes); ++d) {
      const DType dt = kDTypes[d];
      const Result r = measure(f, dt, d < 2 ? 1 << 16 : d == 2 ? n_float32 : n_float64, d < 2);
      if (f.limits[d] > 0) {
        EXPECT_LE(r.max_ulp, f.limits[d]) << f.name << " of " << name(dt) << ", input " << testing::PrintToString(r.at) << " gives "
                                          << testing::PrintToString(r.got);
      }
    }
}

TEST(Accuracy, OfElementwiseFunctions) { keep_limits(1 << 20, 1 << 18); }
TEST(Accuracy, OfElementwiseFunctionsInDenseSamples_all) { keep_limits(int64_t{1} << 25, int64_t{1} << 22); }

}  // namespace
}  // namespace whit::ulp
