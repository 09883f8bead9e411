// The largest error of each transcendental function in units in the last place (docs/accuracy.md).
//
//   ulp [--all] [--csv] [FUNCTION...]
//
// 16-bit types: every input. float32: 2^24 inputs spread evenly over all bits, with --all every one. float64: 2^22.
// The reference is libm one format wider. An error is measured against the exact value, so a correctly rounded result
// has at most 0.5.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "ir/build.h"
#include "ir/eval.h"
#include "render/renderer.h"
#include "runtime/compiler.h"
#include "runtime/elf_loader.h"

namespace whit {
namespace {

constexpr int64_t kBlock = 1 << 16, kLanes = 16;
using KernelFn = void (*)(void* const*, const int64_t*, void*, int64_t, int64_t);
using Real = long double;

struct Function {
  const char* name;
  UOp (*build)(const UOp& x);
  Real (*exact)(Real x);
};

UOp c(const UOp& x, double v) { return const_like(x, v); }
UOp exp_of(const UOp& x) { return alu(Op::Exp2, {x * c(x, std::numbers::log2e)}); }
UOp unary(Op op, const UOp& x) { return alu(op, {x}); }

const Function kFunctions[] = {
    {"exp2", [](const UOp& x) { return unary(Op::Exp2, x); }, [](Real x) { return std::exp2(x); }},
    {"log2", [](const UOp& x) { return unary(Op::Log2, x); }, [](Real x) { return std::log2(x); }},
    {"sin", [](const UOp& x) { return unary(Op::Sin, x); }, [](Real x) { return std::sin(x); }},
    {"sqrt", [](const UOp& x) { return unary(Op::Sqrt, x); }, [](Real x) { return std::sqrt(x); }},
    {"reciprocal", [](const UOp& x) { return unary(Op::Recip, x); }, [](Real x) { return 1 / x; }},
    {"exp", exp_of, [](Real x) { return std::exp(x); }},
    {"log", [](const UOp& x) { return unary(Op::Log2, x) * c(x, std::numbers::ln2); }, [](Real x) { return std::log(x); }},
    {"cos",
     [](const UOp& x) {
       const UOp s = unary(Op::Sin, x * c(x, 0.5));
       return c(x, 1.0) - (s * s) * c(x, 2.0);
     },
     [](Real x) { return std::cos(x); }},
    {"sigmoid", [](const UOp& x) { return unary(Op::Recip, exp_of(-x) + c(x, 1.0)); },
     [](Real x) { return 1 / (1 + std::exp(-x)); }},
    {"pow(x,3.7)", [](const UOp& x) { return alu(Op::Pow, {x, c(x, 3.75)}); }, [](Real x) { return std::pow(x, Real(3.75)); }},
    {"pow(1.7,x)", [](const UOp& x) { return alu(Op::Pow, {c(x, 1.75), x}); }, [](Real x) { return std::pow(Real(1.75), x); }},
};

KernelFn compile(const Function& f, DType dtype, std::shared_ptr<LoadedObject>& object) {
  static const std::shared_ptr<Compiler> compiler = make_llvm_compiler(host_cpu_arch());
  const int64_t n[] = {kBlock};
  const UOp r = range(kBlock / kLanes, 0, AxisType::Global), at = r * kLanes;
  const UOp x = UOp::make(Op::Load, dtype, {index(param(0, dtype, n), at)}, Arg(kLanes));
  // Narrow types are computed in float32, as the front end does.
  const bool widen = n_bytes(dtype) < 4;
  const UOp y = widen ? cast(f.build(cast(x, DType::Float32)), dtype) : f.build(x);
  std::vector<UOp> list;
  const UOp done = store(index(param(1, dtype, n), at), y);
  for (const Node* node : toposort(done)) list.emplace_back(node);
  list.push_back(UOp::make(Op::EndRange, DType::Void, {r}));
  const Renderer& llvm = renderer_by_name("llvm");
  const UOp program = decompose(UOp::make(Op::Linear, DType::Void, list), llvm.caps);
  object = LoadedObject::load(compiler->compile("k", llvm.render(program, "k", host_target())), f.name);
  return reinterpret_cast<KernelFn>(object->must_find("k"));
}

struct Format {
  int n_mantissa, least_exponent;
  double max;
};
Format format_of(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return {10, -14, 65504};
    case DType::BFloat16:
      return {7, -126, 0x1.FEp127};
    case DType::Float32:
      return {23, -126, 0x1.FFFFFEp127};
    default:
      return {52, -1022, std::numeric_limits<double>::max()};
  }
}

// |got - exact| in units of the format's spacing at `exact`; infinite where one of them is NaN.
double error_in_ulp(const Format& fmt, Real exact, double got) {
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : HUGE_VAL;
  const Real overflow = Real(fmt.max) + std::ldexp(Real(1), std::ilogb(fmt.max) - fmt.n_mantissa - 1);
  if (std::isinf(got)) return std::fabs(exact) >= overflow && (got > 0) == (exact > 0) ? 0 : HUGE_VAL;
  // Past the largest number the next one that would be stands for infinity.
  if (std::isinf(exact)) return HUGE_VAL;
  const int exponent = exact == 0 ? fmt.least_exponent : std::max(static_cast<int>(std::ilogb(exact)), fmt.least_exponent);
  return static_cast<double>(std::fabs(Real(got) - exact) / std::ldexp(Real(1), exponent - fmt.n_mantissa));
}

struct Result {
  double max_ulp = 0, sum_ulp = 0, at = 0, got = 0, ns = 0;
  int64_t n = 0;
};

Result measure(const Function& f, DType dtype, int64_t n_inputs) {
  std::shared_ptr<LoadedObject> object;
  const KernelFn kernel = compile(f, dtype, object);
  const Format fmt = format_of(dtype);
  const size_t n_bytes_each = static_cast<size_t>(n_bytes(dtype));
  const int n_bits = static_cast<int>(8 * n_bytes_each);
  const bool every = n_bits <= 32 && n_inputs == int64_t{1} << n_bits;
  std::vector<char> in(kBlock * n_bytes_each), out(kBlock * n_bytes_each);
  Result r;
  for (int64_t first = 0; first < n_inputs; first += kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) {
      // A multiplier without a pattern spreads samples over all exponents and mantissas.
      const uint64_t k = static_cast<uint64_t>(first + i);
      uint64_t bits = every ? k : (k * 0x9E3779B97F4A7C15) >> (64 - n_bits);
      if (dtype == DType::Float64 && i % 2) {  // half of the samples where results are numbers
        const double v = (static_cast<double>(bits >> 11) * 0x1p-52 - 1) * (i % 4 == 1 ? 745 : 20);
        std::memcpy(&bits, &v, 8);
      }
      std::memcpy(in.data() + static_cast<size_t>(i) * n_bytes_each, &bits, n_bytes_each);
    }
    void* buffers[] = {in.data(), out.data()};
    const auto begin = std::chrono::steady_clock::now();
    kernel(buffers, nullptr, nullptr, 0, kBlock / kLanes);
    r.ns += std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
    for (int64_t i = 0; i < kBlock; ++i) {
      const double x = read_element(dtype, in.data(), i).f, got = read_element(dtype, out.data(), i).f;
      const double e = error_in_ulp(fmt, f.exact(x), got);
      r.sum_ulp += e;
      if (!(e <= r.max_ulp)) r.max_ulp = e, r.at = x, r.got = got;
    }
    r.n += kBlock;
  }
  r.ns /= static_cast<double>(r.n);
  return r;
}

}  // namespace
}  // namespace whit

int main(int argc, char** argv) {
  using namespace whit;
  bool all = false;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--all")
      all = true;
    else
      wanted.emplace_back(argv[i]);
  }
  std::printf("| function | dtype | inputs | max ULP | at | mean ULP | ns an element |\n|---|---|---|---|---|---|---|\n");
  for (const Function& f : kFunctions) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), f.name) == wanted.end()) continue;
    for (const DType dt : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64}) {
      const int64_t n = n_bytes(dt) == 2   ? 1 << 16
                        : dt == DType::Float64 ? 1 << 22
                        : all                  ? int64_t{1} << 32
                                               : 1 << 24;
      const Result r = measure(f, dt, n);
      std::printf("| %s | %s | %lld | %.3f | %a | %.3f | %.2f |\n", f.name, std::string(name(dt)).c_str(),
                  static_cast<long long>(r.n), r.max_ulp, r.at, r.sum_ulp / static_cast<double>(r.n), r.ns);
      std::fflush(stdout);
    }
  }
}
