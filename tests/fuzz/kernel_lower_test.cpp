// Random kernels: the graph and the LINEAR that code generation makes of it must store the same.
//
// Values are integers or floats that hold small integers, so that the order of a sum does not matter.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "codegen/lower.h"
#include "interpret_linear.h"
#include "ir/build.h"
#include "ir/interpret.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace whit;

namespace {

struct Generator {
  std::mt19937 random;
  DType dtype = DType::Int32;
  std::vector<int64_t> input_sizes{};

  size_t below(size_t n) { return random() % n; }
  template <class T> const T& pick(const std::vector<T>& from) { return from[below(from.size())]; }

  // Sizes of all kinds: those that tiles and lanes divide, and those they do not.
  int64_t size() { return below(4) ? static_cast<int64_t>(1 + below(17)) : int64_t{16} << below(3); }

  // A read of an input at an index over `ranges`, gated when the buffer is too small for it.
  UOp read(const std::vector<UOp>& ranges) {
    UOp at = idx(static_cast<int64_t>(below(3)));
    for (const UOp& r : ranges)
      if (below(4)) at = at + r * static_cast<int64_t>(1 + below(9));
    if (below(4) == 0) at = floor_div(at, static_cast<int64_t>(1 + below(4)));
    if (below(4) == 0) at = floor_mod(at, static_cast<int64_t>(2 + below(12)));
    const bool small = below(3) == 0;
    const int64_t n = small ? std::max<int64_t>(1, at.vmax() / 2) : at.vmax() + 1;
    input_sizes.push_back(n);
    const UOp buffer = param(static_cast<int64_t>(input_sizes.size()), dtype, Dims{n});
    return load(index(buffer, at, small ? lt(at, n) : UOp()));
  }

  UOp value(const std::vector<UOp>& ranges, int depth, int64_t& next_id) {
    if (depth == 0) return below(5) ? read(ranges) : constant(dtype, static_cast<int64_t>(below(7)) - 3);
    switch (below(6)) {
      case 0: {
        std::vector<UOp> inner = ranges, over;
        for (size_t n = 1 + below(2); n > 0; --n) {
          over.push_back(range(size(), next_id++, AxisType::Reduce));
          inner.push_back(over.back());
        }
        static constexpr const char* kMonoids[] = {"add", "add", "max", "min"};
        const UOp x = value(inner, depth - 1, next_id);
        return reduce(x, kMonoids[below(4)], over);
      }
      case 1:
        return where(lt(value(ranges, depth - 1, next_id), constant(dtype, 1)), value(ranges, depth - 1, next_id), value(ranges, depth - 1, next_id));
      case 2: return alu(Op::Max, {value(ranges, depth - 1, next_id), value(ranges, depth - 1, next_id)});
      case 3: return value(ranges, depth - 1, next_id) * constant(dtype, static_cast<int64_t>(below(5)) - 2);
      default: return value(ranges, depth - 1, next_id) + value(ranges, depth - 1, next_id);
    }
  }

  UOp kernel() {
    int64_t next_id = 10;
    std::vector<UOp> ranges;
    for (size_t n = below(4); n > 0; --n) ranges.push_back(range(size(), static_cast<int64_t>(ranges.size()), AxisType::Weak));
    UOp at = idx(0);
    int64_t n_out = 1;
    for (size_t i = ranges.size(); i-- > 0;) {
      at = at + ranges[i] * n_out;
      n_out *= range_size(ranges[i].node());
    }
    const UOp v = value(ranges, 3, next_id);
    const UOp st = store(index(param(0, dtype, Dims{n_out}), at), v);
    return UOp::make(Op::Sink, DType::Void, {end(st, ranges)}, Arg::list({"fuzz"}));
  }
};

// The kernel with its ranges split and typed at random, as an optimiser might: output loops into LOOP and UPCAST or
// LANE, reduce loops into REDUCE and UNROLL.
UOp relabel(const UOp& kernel, Generator& g) {
  const UOp end = kernel.src(0);
  std::unordered_map<const Node*, std::vector<UOp>> parts;
  std::unordered_map<const Node*, UOp> done;
  bool has_lanes = false;
  const auto split = [&](const Node* r, bool is_output) {
    const int64_t n = range_size(r), id = range_id(r);
    const bool is_first = is_output && id == 0;
    const AxisType outer_type = !is_output ? AxisType::Reduce : is_first && g.below(2) ? AxisType::Global : AxisType::Loop;
    const int64_t factor = int64_t{1} << g.below(4);
    if (factor == 1 || n % factor != 0) {
      parts[r] = {range(n, id, outer_type)};
      done[r] = parts[r][0];
      return;
    }
    const bool lanes = is_output && !has_lanes && g.below(2);
    has_lanes |= lanes;
    const UOp outer = range(n / factor, id, outer_type);
    const UOp inner = range(factor, id + 100, !is_output ? AxisType::Unroll : lanes ? AxisType::Lane : AxisType::Upcast);
    parts[r] = {outer, inner};
    done[r] = outer * factor + inner;
  };
  std::vector<UOp> src;
  for (const Node* n : toposort(kernel)) {
    if (n->op == Op::Range) {
      bool is_output = false;
      for (size_t i = 1; i < end.n_src(); ++i) is_output |= end->src()[i] == n;
      split(n, is_output);
      continue;
    }
    src.clear();
    for (size_t i = 0; i < n->n_src; ++i) {
      const Node* s = n->src()[i];
      if (i > 0 && (n->op == Op::End || n->op == Op::Reduce)) src.insert(src.end(), parts.at(s).begin(), parts.at(s).end());
      else src.push_back(done.at(s));
    }
    done[n] = UOp::make(n->op, n->dtype, src, n->arg);
  }
  return done.at(kernel.node());
}

void check(unsigned seed, bool with_labels, unsigned& n_vectorised) {
  Generator g{std::mt19937(seed)};
  static constexpr DType kTypes[] = {DType::Int32, DType::Float32, DType::Int8, DType::Float64, DType::Int64};
  g.dtype = kTypes[seed % 5];
  UOp kernel;
  for (double steps = 1e9; steps > 20'000;) {
    g.input_sizes.clear();
    kernel = g.kernel();
    steps = 1;
    for (const Node* n : toposort(kernel))
      if (n->op == Op::Range) steps *= static_cast<double>(range_size(n));
  }
  SCOPED_TRACE(fmt::format("seed {}\n{}", seed, to_text(kernel)));
  ASSERT_EQ(find_illegal(kernel, Level::Kernel), "");
  int64_t n_out = 1;
  for (const Node* n : toposort(kernel))
    if (n->op == Op::Param && n->arg.int_at(0) == 0) n_out = n->shape.numel();

  const size_t width = static_cast<size_t>(n_bytes(g.dtype));
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::byte> want(static_cast<size_t>(n_out) * width), got(want.size());
  std::vector<void*> buffers{want.data()};
  for (const int64_t n : g.input_sizes) {
    std::vector<std::byte>& in = inputs.emplace_back(static_cast<size_t>(n) * width);
    for (int64_t i = 0; i < n; ++i) write_element(g.dtype, in.data(), i, Scalar::of(g.dtype, static_cast<int64_t>(g.below(9)) - 4));
    buffers.push_back(in.data());
  }
  evaluate_kernel(kernel, buffers);

  const UOp labelled = with_labels ? relabel(kernel, g) : kernel;
  SCOPED_TRACE(to_text(labelled));
  ASSERT_EQ(find_illegal(labelled, Level::Kernel), "");
  const UOp program = with_labels ? lower_optimized(labelled, host_target()) : lower_kernel(kernel, host_target());
  EXPECT_EQ(find_illegal(program.src(1), Level::Program), "") << to_text(program.src(1));
  bool has_lanes = false;
  for (const Node* n : toposort(program.src(1))) has_lanes |= is_elementwise(n->op) && !n->shape.empty();
  n_vectorised += has_lanes;
  buffers[0] = got.data();
  // In two parts, as two threads would.
  const int64_t extent = ProgramInfo::of(program).extent, middle = static_cast<int64_t>(g.below(static_cast<size_t>(extent) + 1));
  evaluate_linear(program, buffers, {}, 0, middle);
  evaluate_linear(program, buffers, {}, middle, extent);
  for (int64_t i = 0; i < n_out; ++i)
    ASSERT_EQ(read_element(g.dtype, got.data(), i).as_double(), read_element(g.dtype, want.data(), i).as_double()) << "element " << i << "\n"
                                                                                                                   << to_text(program.src(1));
}

void check_all(bool with_labels) {
  unsigned n_vectorised = 0;
  const char* const count = std::getenv("FUZZ_COUNT");
  const char* const start = std::getenv("FUZZ_SEED");
  const unsigned first = start ? static_cast<unsigned>(std::atoll(start)) : 0;
  const unsigned n = count ? static_cast<unsigned>(std::atoll(count)) : 300;
  for (unsigned seed = first; seed < first + n && !testing::Test::HasFailure(); ++seed) check(seed, with_labels, n_vectorised);
  EXPECT_TRUE(!with_labels || n_vectorised > n / 10) << n_vectorised;  // else this tests nothing
}

TEST(KernelLowerFuzz, GraphAndLinearStoreTheSame) { check_all(false); }
TEST(KernelLowerFuzz, AnyLabelsStoreTheSame) { check_all(true); }

}  // namespace
