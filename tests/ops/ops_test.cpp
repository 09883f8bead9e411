// Every row of the catalogue in every dtype that it takes, on every path that runs kernels (CPU through LLVM, CPU through
// C, the REF device), value and gradient, against the reference evaluator on the tensor graph. Elementwise rows and
// those that choose or count elements run a second time on special values: NaN, infinities, zeros of both signs,
// subnormal numbers, the ends of integers. LLVM and C must agree bit for bit. Gradients are also compared with finite
// differences, computed by the reference evaluator in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "base/flags.h"
#include "base/log.h"
#include "interpret_tensor.h"
#include "ops/catalogue.h"
#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "runtime/device.h"

using namespace whit;
using namespace whit::ops;

namespace {

constexpr DType kDTypes[] = {DType::Float32, DType::Int32,   DType::Float64, DType::Float16,     DType::BFloat16,   DType::Bool,
                             DType::Int8,    DType::UInt8,   DType::Int16,   DType::UInt16,      DType::UInt32,     DType::Int64,
                             DType::UInt64,  DType::Fp8E4M3, DType::Fp8E5M2, DType::Fp8E4M3FNUZ, DType::Fp8E5M2FNUZ};

bool takes(const Row& row, DType dt) {
  const unsigned kind = dt == DType::Bool ? kBool : is_float(dt) ? kFloat : kInt;
  return (row.kinds & kind) != 0;
}

double least_positive(DType dt) {
  const uint64_t one = 1;
  return read_element(dt, &one, 0).f;
}

// Every kind of number that is easily got wrong, and numbers of all magnitudes.
Scalar special_value(DType dt, std::mt19937_64& rng) {
  const uint64_t bits = rng();
  const DTypeInfo& i = info(dt);
  if (dt == DType::Bool) return Scalar::of(dt, static_cast<int64_t>(bits & 1));
  if (bits % 3 == 0) {  // any pattern of bits
    const uint64_t any = rng();
    return read_element(dt, &any, 0);
  }
  const uint64_t which = bits / 3 % 12;
  if (!is_float(dt)) {
    const uint64_t ones = ~uint64_t{0} >> (64 - i.bits);
    const uint64_t ends[] = {0, 1, 2, 3, 7, 64, ones, ones - 1, ones >> 1, (ones >> 1) + 1, (ones >> 1) - 1, (ones >> 1) + 2};
    return read_element(dt, &ends[which], 0);
  }
  const double tiny = least_positive(dt), normal = std::ldexp(tiny, i.mantissa_bits);
  uint64_t most = ~uint64_t{0} >> (65 - i.bits);
  if (!is_fp8(dt)) most -= uint64_t{1} << i.mantissa_bits;  // infinities and NaNs have an exponent of their own
  while (!std::isfinite(read_element(dt, &most, 0).f)) --most;
  const double values[] = {0, 1, 0.5, 1.5, 2.5, 3, tiny, 5 * tiny, normal, read_element(dt, &most, 0).f, HUGE_VAL, NAN};
  return Scalar::of(dt, std::copysign(values[which], bits >> 63 ? -1.0 : 1.0));
}

// The same numbers for every path: distinct enough that maxima are unique.
std::vector<Tensor> inputs_of(const Row& row, DType dt, const std::string& device, bool special = false) {
  std::vector<Tensor> inputs;
  std::mt19937_64 rng(std::hash<std::string>()(row.name) % 1000 + 1);
  for (const Dims& shape : row.shapes) {
    const int64_t n = Shape(shape).numel();
    std::vector<std::byte> bytes(static_cast<size_t>(n * n_bytes(dt)));
    for (int64_t i = 0; i < n; ++i) {
      const double unit = static_cast<double>(rng() >> 11) * 0x1p-53;
      const double low = is_unsigned(dt) ? std::max(row.low, 0.0) : row.low;
      double v = low + (row.high - low) * unit;
      if (!is_float(dt)) v = std::floor(v);
      write_element(dt, bytes.data(), i,
                    special             ? special_value(dt, rng)
                    : dt == DType::Bool ? Scalar::of(dt, static_cast<int64_t>(rng() & 1))
                                        : Scalar::of(dt, v));
    }
    inputs.push_back(Tensor::from_bytes(bytes.data(), dt, IntList(shape), {.device = device}));
  }
  return inputs;
}

// Weights 1, 2, 3 .. that make every element of a result count differently in the loss.
Tensor loss_of(const Tensor& y) {
  const Tensor w = (Tensor::arange(y.numel()) % Tensor(7) + 1).cast(y.dtype()).reshape(IntList(y.shape()));
  return (y * w).sum();
}

// The value, and the gradients of float inputs.
std::vector<Tensor> outputs_of(const Row& row, const std::vector<Tensor>& inputs, bool special) {
  std::vector<Tensor> out{row.fn(inputs)};
  if (!special && row.has_gradient && inputs[0].is_floating_point() && out[0].is_floating_point())
    for (const Tensor& g : loss_of(out[0]).gradient(inputs)) out.push_back(g);
  return out;
}

// Contents of the buffers that the graphs read.
struct HostMemory {
  std::map<const Node*, std::vector<std::byte>> bytes;
  HostInputs inputs;
  explicit HostMemory(std::span<const UOp> roots) {
    for (const Node* n : toposort(roots)) {
      if (n->op != Op::Buffer) continue;
      auto& b = bytes[n];
      b.resize(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)));
      const auto memory = std::static_pointer_cast<Buffer>(payload(UOp(n)));
      if (memory && (memory->is_allocated() || memory->spec().external_ptr)) memory->copyout(b.data(), static_cast<int64_t>(b.size()));
      inputs.memory[n] = b.data();
    }
  }
};

std::vector<HostTensor> reference(const std::vector<Tensor>& tensors) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  HostMemory memory(roots);
  return evaluate_tensor(roots, memory.inputs);
}

struct Case {
  const Row* row;
  DType dtype;
  bool special;
  int rank;  // 0: the usual dtypes; 1: those that slow paths run as well; 2: the rest
  std::vector<HostTensor> want{};
  std::string label() const { return fmt::format("{} of {}{}", row->name, special ? "special values of " : "", name(dtype)); }
  std::vector<Tensor> inputs(const std::string& device) const { return inputs_of(*row, dtype, device, special); }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    for (const bool special : {false, true})
      for (const Row& row : catalogue())
        for (const DType dt : kDTypes) {
          if (!takes(row, dt) || (special && !row.is_local)) continue;
          Case c{&row, dt, special, 0};
          const bool usual = dt == DType::Float32 || dt == DType::Int32;
          c.rank = usual && !special ? 0 : std::hash<std::string>()(c.label()) % 8 == 0 ? 1 : 2;
          c.want = reference(outputs_of(row, c.inputs("CPU"), special));
          list.push_back(std::move(c));
        }
    // What is run together may be fused, so every path runs the same groups: none mixes ranks.
    std::stable_sort(list.begin(), list.end(), [](const Case& a, const Case& b) { return a.rank < b.rank; });
    return list;
  }();
  return all;
}

std::string compare(const Case& c, const HostTensor& want, const std::vector<std::byte>& got, double n_epsilons) {
  const DType dt = is_weak(want.dtype) ? strong_dtype(want.dtype) : want.dtype;
  const int64_t n = want.shape.numel();
  if (static_cast<int64_t>(got.size()) != n * n_bytes(dt)) return fmt::format("{} bytes instead of {}", got.size(), n * n_bytes(dt));
  double largest = 0;
  for (int64_t i = 0; i < n; ++i)
    if (const double v = std::fabs(want.at(i).as_double()); std::isfinite(v)) largest = std::max(largest, v);
  // Narrow inputs make their error on the way, whatever the dtype of the result.
  double eps = is_float(dt) ? std::ldexp(1.0, -info(dt).mantissa_bits) : 0;
  if (is_float(c.dtype) && is_float(dt)) eps = std::max(eps, std::ldexp(1.0, -info(c.dtype).mantissa_bits));
  for (int64_t i = 0; i < n; ++i) {
    const double a = want.at(i).as_double(), b = read_element(dt, got.data(), i).as_double();
    if (std::isnan(a) ? std::isnan(b) : a == b) continue;
    const double scale = c.special ? std::fabs(a) : std::max(largest, 1e-3);
    if (std::fabs(a - b) <= n_epsilons * eps * scale) continue;
    // Nothing is relative to a subnormal number.
    if (c.special && is_float(dt) && std::fabs(a - b) <= n_epsilons * least_positive(dt)) continue;
    return fmt::format("element {} of {}: expected {:.9g}, got {:.9g}", i, want.shape.str(), a, b);
  }
  return "";
}

using Results = std::vector<std::vector<std::vector<std::byte>>>;  // [case][output] bytes

// Runs all cases of a path, many at a time so that kernels compile in parallel.
Results run_path(const std::string& path, const std::string& device, const std::vector<std::pair<std::string, FlagValue>>& flags, int most_rank) {
  const FlagScope scope(flags);
  const int64_t kernels = counters().kernel_count.load();
  Results results(cases().size());
  int failures = 0;
  auto run_cases = [&](std::span<const size_t> some) {
    std::vector<std::vector<Tensor>> inputs, outputs;
    std::vector<Tensor> all;
    for (const size_t i : some) {
      const Case& c = cases()[i];
      inputs.push_back(c.inputs(device));
      outputs.push_back(outputs_of(*c.row, inputs.back(), c.special));
      for (Tensor& t : outputs.back()) {
        if (!t.device()) t = t.clone(device);  // a gradient that is a constant
        all.push_back(t);
      }
    }
    Tensor::realize_all(all);
    for (size_t k = 0; k < some.size(); ++k)
      for (const Tensor& t : outputs[k]) results[some[k]].push_back(t.bytes());
  };
  std::vector<size_t> batch;
  auto flush = [&] {
    try {
      if (!batch.empty()) run_cases(batch);
    } catch (const std::exception&) {
      for (const size_t i : batch) {  // one by one, to know which
        results[i].clear();
        try {
          run_cases(std::span(&i, 1));
        } catch (const std::exception& e) {
          results[i].clear();
          if (++failures <= 40) ADD_FAILURE() << path << ": " << cases()[i].label() << ": " << e.what();
        }
      }
    }
    batch.clear();
  };
  for (size_t i = 0; i < cases().size(); ++i) {
    if (cases()[i].rank > most_rank) break;
    if (batch.size() == 24 || (i > 0 && cases()[i].rank != cases()[i - 1].rank)) flush();
    batch.push_back(i);
  }
  flush();
  size_t n_run = 0;
  for (size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    if (results[i].empty()) continue;
    ++n_run;
    for (size_t k = 0; k < c.want.size(); ++k) {
      const std::string wrong = compare(c, c.want[k], results[i][k], c.row->n_epsilons * (k ? 8 : 1));
      if (!wrong.empty() && ++failures <= 40)
        ADD_FAILURE() << path << ": " << c.label() << (k ? fmt::format(", gradient of input {}", k - 1) : "") << ": " << wrong;
    }
  }
  if (failures > 40) ADD_FAILURE() << path << ": " << failures << " failures in all";
  fmt::print("{}: {} of {} cases, {} kernels\n", path, n_run, cases().size(), counters().kernel_count.load() - kernels);
  return results;
}

Results& llvm_results() {
  static Results results = run_path("CPU:LLVM", "CPU", {{"DEV", std::string("CPU:LLVM")}}, 2);
  return results;
}

TEST(Ops, LlvmEqualsTheReference) {
  if (!WHIT_LLVM) GTEST_SKIP() << "built without LLVM";
  llvm_results();
  EXPECT_EQ(code_path("CPU").renderer, "LLVM");
}

// Compiling C is slow: all rows in the usual dtypes, some in the others; the test of all has them.
void c_equals_the_reference_and_llvm(int most_rank) {
  const Results c = run_path("CPU:C", "CPU", {{"DEV", std::string("CPU:C")}}, most_rank);
  if (!WHIT_LLVM) return;
  const Results& llvm = llvm_results();
  int failures = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    if (c[i].empty() || llvm[i].empty()) continue;
    for (size_t k = 0; k < c[i].size(); ++k) {
      const HostTensor& want = cases()[i].want[k];
      const DType dt = is_weak(want.dtype) ? strong_dtype(want.dtype) : want.dtype;
      if (c[i][k] == llvm[i][k]) continue;
      for (int64_t e = 0, n = want.shape.numel(); e < n; ++e) {  // NaNs have many forms
        const Scalar a = read_element(dt, c[i][k].data(), e), b = read_element(dt, llvm[i][k].data(), e);
        if (is_float(dt) ? (std::isnan(a.f) && std::isnan(b.f)) || std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) : a.i == b.i)
          continue;
        if (++failures <= 20)
          ADD_FAILURE() << cases()[i].label() << ", output " << k << ", element " << e << ": C gives " << fmt::format("{:.17g}", a.as_double())
                        << ", LLVM " << fmt::format("{:.17g}", b.as_double());
        break;
      }
    }
  }
  EXPECT_EQ(failures, 0);
}

TEST(Ops, CEqualsTheReferenceAndLlvmBitForBit) { c_equals_the_reference_and_llvm(1); }
TEST(Ops, CEqualsTheReferenceAndLlvmBitForBit_all) { c_equals_the_reference_and_llvm(2); }

TEST(Ops, UnoptimisedKernelsEqualTheReference) {
  const std::string dev = WHIT_LLVM ? "CPU:LLVM" : "CPU:C";
  run_path(dev + " NOOPT=1", "CPU", {{"DEV", dev}, {"NOOPT", int64_t{1}}}, 1);
}

TEST(Ops, RefDeviceEqualsTheReference) { run_path("REF", "REF", {}, 2); }

TEST(Ops, NoPathFellBack) { EXPECT_EQ(said_so_far().find("no compiler"), std::string::npos) << said_so_far(); }

// The gradient of a loss, weighed into a number again.
Tensor loss_of_gradient(const Tensor& loss, const std::vector<Tensor>& inputs) {
  Tensor sum = Tensor(0.0).cast(DType::Float64);
  double weight = 1;  // not the same for all: their sum may be constant
  for (const Tensor& g : loss.gradient(inputs)) sum = sum + loss_of(g) * (weight *= 1.5);
  return sum;
}

// The gradient of `loss` against central differences, both computed by the reference evaluator in float64. "" or how
// they differ.
std::string check_gradient(const Tensor& loss, const std::vector<Tensor>& inputs, int64_t n_elements) {
  const std::vector<HostTensor> gradients = reference(loss.gradient(inputs));
  const UOp root = loss.uop();
  HostMemory memory(std::span(&root, 1));
  for (size_t k = 0; k < inputs.size(); ++k) {
    // The buffer of this input.
    const NodeList below = toposort(inputs[k].uop());
    const auto it = std::find_if(below.begin(), below.end(), [](const Node* n) { return n->op == Op::Buffer; });
    if (it == below.end()) return fmt::format("input {} has no memory", k);
    std::byte* const data = memory.bytes.contains(*it) ? memory.bytes[*it].data() : nullptr;
    const int64_t n = inputs[k].numel();
    for (int64_t e = 0; e < n; e += std::max<int64_t>(1, n / n_elements)) {
      const double got = gradients[k].at(e).as_double();
      double want = 0, size = 0;
      if (data) {
        const double h = 1e-5, x = read_element(DType::Float64, data, e).f;
        double at[2];
        for (const int side : {0, 1}) {
          write_element(DType::Float64, data, e, Scalar::of(DType::Float64, side ? x + h : x - h));
          at[side] = evaluate_tensor(root, memory.inputs).at(0).as_double();
        }
        write_element(DType::Float64, data, e, Scalar::of(DType::Float64, x));
        want = (at[1] - at[0]) / (2 * h);
        size = std::fabs(at[0]);
      }
      if (std::fabs(want - got) <= 1e-4 * std::max({1.0, std::fabs(want), size * 1e-3})) continue;
      return fmt::format("input {}, element {}: gradient {}, difference quotient {}", k, e, got, want);
    }
  }
  return "";
}

// First order, second order (the gradient's gradient), and so on.
void check_orders(int order, int64_t n_elements, bool (*wanted)(const Row&)) {
  int failures = 0, n = 0;
  for (const Row& row : catalogue()) {
    if (!row.has_gradient || !(row.kinds & kFloat) || !wanted(row)) continue;
    const std::vector<Tensor> inputs = inputs_of(row, DType::Float64, "CPU");
    std::string wrong;
    try {
      Tensor loss = loss_of(row.fn(inputs));
      for (int i = 1; i < order; ++i) loss = loss_of_gradient(loss, inputs);
      wrong = check_gradient(loss, inputs, n_elements);
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    ++n;
    if (!wrong.empty() && ++failures <= 40) ADD_FAILURE() << row.name << ": " << wrong;
  }
  EXPECT_EQ(failures, 0);
  fmt::print("order {}: {} rows\n", order, n);
}
bool every_row(const Row&) { return true; }
bool third_order_row(const Row& row) { return row.shapes.size() <= 2 && std::hash<std::string>()(row.name) % 3 == 0; }

TEST(Gradients, EqualFiniteDifferences) { check_orders(1, 5, every_row); }
TEST(Gradients, OfGradientsEqualFiniteDifferences) { check_orders(2, 3, every_row); }
TEST(Gradients, OfThirdOrderEqualFiniteDifferences) { check_orders(3, 1, third_order_row); }
TEST(Gradients, EqualFiniteDifferencesEverywhere_all) { check_orders(1, 1 << 30, every_row); }
TEST(Gradients, OfGradientsEqualFiniteDifferencesEverywhere_all) { check_orders(2, 40, every_row); }

// ---- coverage

// Why a method of Tensor has no row: it makes no values from values.
const std::map<std::string, const char*> kNoRow = {
    {"constant", "creation"},
    {"constant_int", "creation"},
    {"from_bytes", "creation"},
    {"from_blob", "creation"},
    {"from", "creation"},

    {"unique", "its result's size depends on data; tested from Python"},
    {"empty", "creation"},
    {"full", "creation"},
    {"zeros", "creation"},
    {"ones", "creation"},
    {"empty_like", "creation"},
    {"full_like", "creation"},
    {"zeros_like", "creation"},
    {"ones_like", "creation"},
    {"const_like", "creation"},
    {"arange", "creation"},
    {"arange_float", "creation"},
    {"linspace", "creation"},
    {"eye", "creation"},
    {"random_bits", "random"},
    {"rand", "random"},
    {"randn", "random"},
    {"randint", "random"},
    {"normal", "random"},
    {"uniform", "random"},
    {"scaled_uniform", "random"},
    {"glorot_uniform", "random"},
    {"kaiming_uniform", "random"},
    {"kaiming_normal", "random"},
    {"randperm", "random"},
    {"rand_like", "random"},
    {"randn_like", "random"},
    {"multinomial", "random"},
    {"dropout", "random"},
    {"is_param_", "state"},
    {"grad", "state"},
    {"realize", "state"},
    {"replace", "state"},
    {"to_", "state"},
    {"shard", "tests/unit: tensor_multi"},
    {"shard_", "tests/unit: tensor_multi"},
    {"shard_like", "tests/unit: tensor_multi"},

    {"backward", "tests/unit: it adds to grad what gradient gives"},
    {"gradient", "what is tested"},
    {"hash", "conformance: hash"},
    {"keccak", "conformance: hash"},
    {"as_param", "function"},
    {"call", "function"},
    {"custom_kernel", "function"},
};
// Why a method's row has no gradient.
const std::map<std::string, const char*> kNoGradient = {
    {"bitcast", "bits"},
    {"logical_not", "bool"},
    {"isnan", "bool"},
    {"isinf", "bool"},
    {"isfinite", "bool"},
    {"lt", "bool"},
    {"gt", "bool"},
    {"le", "bool"},
    {"ge", "bool"},
    {"eq", "bool"},
    {"ne", "bool"},
    {"isclose", "bool"},
    {"allclose", "bool"},
    {"any", "bool"},
    {"all", "bool"},
    {"bitwise_not", "ints"},
    {"bitwise_and", "ints"},
    {"bitwise_or", "ints"},
    {"bitwise_xor", "ints"},
    {"lshift", "ints"},
    {"rshift", "ints"},
    {"threefry", "ints"},
    {"argmax", "ints"},
    {"argmin", "ints"},
    {"argsort", "ints"},
    {"nonzero", "ints"},
    {"one_hot", "ints"},
    {"to_half", "cast has one"},
    {"to_float", "cast has one"},
    {"to_int", "ints"},
    {"to_bool", "bool"},
};

// Names of the methods of Tensor that give tensors, from the public header.
std::set<std::string> public_methods() {
  std::ifstream in("include/whit/tensor.h");
  std::stringstream text;
  text << in.rdbuf();
  std::string body = text.str();
  body = body.substr(body.find("class Tensor {\n public:"));
  body = body.substr(0, body.find("  struct Impl;"));
  std::set<std::string> names;
  const std::regex method(R"(\n  (?:template <[^>]*> )?(?:static )?(?:const )?(?:Tensor&?|std::vector<Tensor>|std::pair<Tensor, Tensor>) (\w+)\()");
  for (std::sregex_iterator it(body.begin(), body.end(), method), end; it != end; ++it)
    if ((*it)[1] != "operator") names.insert((*it)[1]);
  return names;
}

TEST(Coverage, EveryMethodHasARowAndItsGradientOne) {
  std::set<std::string> rows, gradients;
  for (const Row& row : catalogue()) {
    const std::string first = row.name.substr(0, row.name.find(' '));
    rows.insert(first);
    if (row.has_gradient && (row.kinds & kFloat)) gradients.insert(first);
  }
  const std::set<std::string> names = public_methods();
  EXPECT_GT(names.size(), 150u);
  for (const std::string& name : names) {
    if (kNoRow.contains(name)) continue;
    EXPECT_TRUE(rows.contains(name)) << name << " has no row in the catalogue";
    EXPECT_NE(gradients.contains(name), kNoGradient.contains(name)) << name << ": gradient";
  }
  for (const auto* list : {&kNoRow, &kNoGradient})
    for (const auto& [name, why] : *list)
      EXPECT_TRUE(names.contains(name) || rows.contains(name) || name == "weak_uint" || name == "weak_float" || name == "set_view")
          << name << " is listed, but is no method";
}

}  // namespace
