// The bits of a result depend neither on the number of threads (kernels made for 1, 2, 3, 4 and 8 cores, each run in as many
// parts) nor on what a search decides.
#include <gtest/gtest.h>

#include "unit/kernel_zoo.h"
#include "unit/run_kernel.h"

namespace whit {
namespace {

Target with_cores(int n) {
  Target t = testing::test_target();
  t.n_cores = n;
  return t;
}

std::vector<std::vector<std::byte>> result(const UOp& sink, int n_cores, codegen::Decisions* decisions = nullptr) {
  testing::KernelMemory memory(sink);
  const testing::BuiltKernel k(lower_kernel(sink, with_cores(n_cores), decisions));
  auto p = memory.pointers();
  for (int i = 0; i < n_cores; ++i) k.run(p.data(), k.info.extent * i / n_cores, k.info.extent * (i + 1) / n_cores);
  return memory.bytes;
}

// Rows of `n` numbers, added to those of a table of 10 that the indices name, in order.
UOp scatter_add(int64_t n_rows, int64_t n) {
  const UOp d = range(n, 0, AxisType::Weak), i = range(n_rows, 1, AxisType::Loop), table = zoo::buffer(0, 10 * n);
  const UOp row = cast(zoo::at(zoo::buffer(1, n_rows, DType::Int32), i), DType::WeakInt);
  const UOp inside = ge(row, 0) & lt(row, 10), to = index(table, row * n + d, inside);
  const std::vector<UOp> ranges{d, i};
  return zoo::sink({end(store(to, load(to) + zoo::at(zoo::buffer(2, n_rows * n), i * n + d)), ranges)});
}

std::vector<std::pair<const char*, UOp>> kernels() {
  return {{"matmul", zoo::matmul({129, 300, 77})},
          {"matmul B^T", zoo::matmul({5, 300, 333, false, true})},
          {"convolution", zoo::conv_forward({5, 3, 20, 17, 17, 3, 3, 1})},
          {"gradient of the image", zoo::conv_data_gradient({5, 8, 20, 17, 17, 3, 3, 1})},
          {"gradient of the weights", zoo::conv_weight_gradient({40, 8, 20, 17, 17, 3, 3})},
          {"matmul A^T", zoo::matmul({300, 129, 77, true, false})},
          {"matrix times vector", zoo::matmul({1, 1000, 700, false, true})},
          {"convolution of rows", zoo::conv_forward({3, 32, 32, 14, 58, 1, 3})},
          {"few pixels, many weights", zoo::conv_forward({1, 128, 160, 7, 7, 3, 3, 1})},
          {"elementwise", zoo::elementwise(300, 333)},
          {"max pool", zoo::max_pool(50, 20, 20)},
          {"column sums", zoo::column_sums(700, 500)},
          {"channel sums", zoo::channel_sums(50, 24, 99)},
          {"softmax", zoo::softmax(100, 333)},
          {"layer norm", zoo::layer_norm(100, 333)},
          {"attention", zoo::attention({3, 100, 100, 16, zoo::AttentionShape::Mask::Causal})},
          {"scatter", scatter_add(1000, 333)}};
}

TEST(Threads, DoNotChangeABit) {
  for (const auto& [name, sink] : kernels()) {
    const auto want = result(sink, 1);
    for (const int n : {2, 3, 4, 8}) EXPECT_EQ(result(sink, n), want) << name << ", " << n << " cores";
  }
}

TEST(Decisions, DoNotChangeABit) {
  for (const auto& [name, sink] : kernels()) {
    codegen::Decisions model;
    const auto want = result(sink, 2, &model);
    // The C compiler, where LLVM is left out, takes half a second a kernel: one other answer each.
    for (const auto& [question, n] : model.asked())
      for (int i = 1; i < (WHIT_LLVM ? n : 2); i += i < 4 ? 1 : 5) {
        codegen::Decisions other = model.with(question, i);
        EXPECT_EQ(result(sink, 2, &other), want) << name << " " << other.str();
      }
  }
}

TEST(Decisions, AreText) {
  codegen::Decisions d("0.plan=3 1.unroll=2 nonsense x=y 2.tile=-1");
  EXPECT_EQ(d.str(), "0.plan=3 1.unroll=2");
  EXPECT_EQ(d.pick("0.plan", 8), 3);
  EXPECT_EQ(d.pick("0.plan", 3), 0) << "there is no such alternative";
  EXPECT_EQ(d.pick("0.pack", 2), 0);
  EXPECT_EQ(d.with("0.plan", 0).with("0.lane", 1).str(), "0.lane=1 1.unroll=2");
  EXPECT_EQ(d.asked(), (std::map<std::string, int>{{"0.pack", 2}, {"0.plan", 3}}));
}

TEST(Threads, ShareAScatterByColumns) {
  const UOp sink = scatter_add(4000, 768);
  EXPECT_EQ(testing::difference(scatter_add(30, 70), lower_kernel(scatter_add(30, 70), with_cores(4))), "");
  EXPECT_EQ(ProgramInfo::of(lower_kernel(sink, with_cores(4))).extent, 4);
  EXPECT_EQ(ProgramInfo::of(lower_kernel(sink, with_cores(1))).extent, 1);
}

}  // namespace
}  // namespace whit
