// Small programs for the rules that neither models nor fuzzers fire: each fires its rule, and gives what the reference
// evaluator gives.
#include <gtest/gtest.h>

#include <cmath>

#include "base/flags.h"
#include "rewrite/rewrite.h"
#include "whit/whit.h"

namespace whit {
namespace {

struct Program {
  const char* rule;
  std::vector<Tensor> (*run)(const std::string& device);
};

Tensor ints(const std::string& device, std::vector<int32_t> v) { return Tensor::from(v, {static_cast<int64_t>(v.size())}).to(device).realize(); }
Tensor floats(const std::string& device) { return Tensor::from<float>({-2.5, -0.0, 0.25, 7}).to(device).realize(); }
Tensor a(const std::string& device) { return ints(device, {-7, 0, 3, 2147483647}); }
Tensor b(const std::string& device) { return ints(device, {5, -1, 6, 3}); }

const Program kPrograms[] = {
    {"algebra/add-constant-out", [](const std::string& d) { return std::vector{(a(d) + 3) + b(d)}; }},
    {"algebra/add-multiples", [](const std::string& d) { return std::vector{[x = a(d)] { return x * 3 + x * 5; }()}; }},
    {"algebra/add-negative-zero", [](const std::string& d) { return std::vector{floats(d) - 0.0}; }},
    {"algebra/and-constants", [](const std::string& d) { return std::vector{(a(d) & 0xFF) & 0x3C}; }},
    {"algebra/or-constants", [](const std::string& d) { return std::vector{(a(d) | 0xF0) | 0x3C}; }},
    {"algebra/and-ones", [](const std::string& d) { return std::vector{a(d) & -1}; }},
    {"algebra/mul-constants", [](const std::string& d) { return std::vector{a(d) * 3 * 5}; }},
    {"algebra/min-constants", [](const std::string& d) { return std::vector{a(d).minimum(5).minimum(3)}; }},
    {"algebra/mul-neg-neg", [](const std::string& d) { return std::vector{(-floats(d)) * (-floats(d))}; }},
    {"algebra/trunc-trunc", [](const std::string& d) { return std::vector{floats(d).trunc().trunc()}; }},
    {"gate/bool-lt", [](const std::string& d) { return std::vector{(a(d) > 0).lt(b(d) > 0)}; }},
    {"gate/where-in-false",
     [](const std::string& d) { return std::vector{[c = a(d) > 0, x = b(d)] { return c.where(x, c.where(x + 1, x * 2)); }()}; }},
    {"algebra/sub-neg", [](const std::string& d) { return std::vector{a(d) - (-b(d)), floats(d) - (-floats(d).abs().sqrt())}; }},
    {"algebra/mul-minus-one", [](const std::string& d) { return std::vector{a(d) * -1}; }},
    {"cast/cast-of-where", [](const std::string& d) { return std::vector{(a(d) > 1).where(Tensor(3), Tensor(4)).cast(DType::Float32)}; }},
    {"cast/bitcast-bitcast", [](const std::string& d) { return std::vector{floats(d).bitcast(DType::Int32).bitcast(DType::Float32)}; }},
    {"gate/where-is-not", [](const std::string& d) { return std::vector{(a(d) > 1).where(Tensor(false), Tensor(true))}; }},
    {"gate/where-or", [](const std::string& d) { return std::vector{(a(d) > 1).where(Tensor(true), b(d) > 0)}; }},
    {"decompose-math/logistic", [](const std::string& d) { return std::vector{floats(d).sigmoid()}; }},
};

class Programs : public testing::TestWithParam<Program> {};

TEST_P(Programs, FireTheirRule) {
  const FlagScope here("PARALLEL", int64_t{0}), no_files("CACHELEVEL", int64_t{0});
  RewriteTrace trace;
  const std::vector<Tensor> got = GetParam().run("CPU"), want = GetParam().run("REF");
  bool is_fired = false;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto have = got[i].cast(DType::Float64).to_vector<double>(), expected = want[i].cast(DType::Float64).to_vector<double>();
    ASSERT_EQ(have.size(), expected.size());
    for (size_t e = 0; e < have.size(); ++e) EXPECT_NEAR(have[e], expected[e], 1e-6 * std::abs(expected[e]));
  }
  for (const RewriteEvent& e : trace.events) is_fired |= e.rule == GetParam().rule;
  EXPECT_TRUE(is_fired) << GetParam().rule;
}

INSTANTIATE_TEST_SUITE_P(Rules, Programs, testing::ValuesIn(kPrograms), [](const auto& of) {
  std::string name = of.param.rule;
  for (char& c : name)
    if (!isalnum(c)) c = '_';
  return name;
});

}  // namespace
}  // namespace whit
