#include <gtest/gtest.h>

#include "codegen/optimize.h"
#include "interpret_linear.h"
#include "ir/text.h"
#include "unit/kernel_zoo.h"
#include "unit/run_kernel.h"

namespace whit {
namespace {

// Caches this small make every path of the schedule reachable with small shapes.
Target small(int64_t l2 = 8192, int cores = 2) {
  Target t = testing::test_target();
  t.l2_bytes = l2;
  t.n_cores = cores;
  return t;
}
std::string check(const UOp& k, const Target& t) {
  const UOp p = lower_kernel(k, t);
  std::string d = testing::difference(k, p, 2e-5, 3);
  if (!d.empty()) d = "opts " + to_text(p.src(0).arg()) + ": " + d.substr(0, 300);
  return d;
}
std::string opts(const UOp& k, const Target& t) { return to_text(codegen::optimize(k, t).arg()); }
int count(const UOp& program, Op op) {
  int n = 0;
  for (const Node* m : program->src()[1]->src()) n += m->op == op;
  return n;
}

// The most accumulators that one loop of a sum holds.
int most_accumulators(const UOp& program) {
  std::vector<int> open;
  int most = 0;
  for (const Node* n : program->src()[1]->src()) {
    if (n->op == Op::Range) {
      open.push_back(0);
    } else if (n->op == Op::EndRange) {
      if (axis_type(n->src()[0]) == AxisType::Reduce) most = std::max(most, open.back());
      open.pop_back();
    } else if (n->op == Op::Store && n->src()[0]->op == Op::Reg) {
      ++open.back();
    }
  }
  return most;
}

TEST(Contract, Matmul) {
  for (const int64_t m : {1, 2, 5, 17, 64})
    for (const int64_t n : {1, 7, 16, 33, 70})
      for (const int64_t k : {2, 3, 32, 70}) {
        for (const bool ta : {false, true})
          for (const bool tb : {false, true})
            ASSERT_EQ(check(zoo::matmul({m, n, k, ta, tb, (m + n) % 2 == 0}), small()), "") << m << " " << n << " " << k << " " << ta << tb;
      }
}

// A tile of 9 x 3 accumulators is no faster than 8 x 3, and leaves no register to what follows the sum: with a gelu it took twice as long.
TEST(Contract, TilesOfFloatsLeaveRegisters) {
  Target t = small(1 << 20);
  t.vector_bytes = 64, t.n_vector_registers = 32;
  const std::string text = opts(zoo::matmul({512, 2048, 512, false, false, false}), t);
  EXPECT_NE(text.find("rows 8 vectors 3x16 pack"), std::string::npos) << text;
  // 768 columns of 50257 rows are packed: read element by element, each on a page of its own, they come from memory for every tile.
  const std::string head = opts(zoo::matmul({256, 768, 50257, false, false, false}), t);
  EXPECT_NE(head.find("rows 8 vectors 3x16 pack"), std::string::npos) << head;
}

// Few outputs of long sums. What decides is the shape: the order of a sum is the same on every machine, and whatever is stored.
TEST(Contract, FewLongSumsAreDotProducts) {
  using S = zoo::MatmulShape;
  for (const int vector_bytes : {16, 32, 64})
    for (const int cores : {1, 8}) {
      Target t = small(1 << 20, cores);
      t.vector_bytes = vector_bytes;
      const auto is_dots = [&](const S& s) { return opts(zoo::matmul(s), t).find("dots") != std::string::npos; };
      for (const S& s : {S{17, 17, 64, false, true}, S{7, 17, 333, false, true}, S{24, 3, 100}, S{3, 40, 70, true, true}, S{5, 3, 17},
                         S{17, 17, 64, false, true, true}}) {
        EXPECT_EQ(check(zoo::matmul(s), t), "") << s.m << " " << s.n << " " << s.k;
        EXPECT_TRUE(is_dots(s)) << s.m << " " << s.n << " " << s.k;
      }
      for (const S& s : {S{64, 64, 64, false, true}, S{17, 17, 333}, S{3, 3, 16}, S{3, 64, 64, true, false}}) EXPECT_FALSE(is_dots(s)) << s.m;
    }
}

// One row times few columns: one vector of sums in four chains of multiply-adds, which need not wait for each other.
TEST(Contract, RowsTimesFewColumnsAreChains) {
  using S = zoo::MatmulShape;
  for (const int vector_bytes : {16, 32, 64}) {
    Target t = small(1 << 20);
    t.vector_bytes = vector_bytes;
    const auto is_chains = [&](const S& s) { return opts(zoo::matmul(s), t).find("chains") != std::string::npos; };
    for (const S& s : {S{1, 7, 1000}, S{1, 3, 65}, S{1, 16, 17}, S{3, 1, 33, true}, S{9, 1, 64, true}, S{1, 7, 99, false, false, true}}) {
      EXPECT_EQ(check(zoo::matmul(s), t), "") << s.m << " " << s.n << " " << s.k;
      EXPECT_TRUE(is_chains(s)) << s.m << " " << s.n << " " << s.k;
      EXPECT_EQ(most_accumulators(lower_kernel(zoo::matmul(s), t)), 4);
    }
    for (const S& s : {S{1, 17, 100}, S{1, 7, 16}, S{2, 7, 100}, S{1, 7, 100, false, true}}) EXPECT_FALSE(is_chains(s)) << s.n << " " << s.k;
  }
}

// A short sum beside the product that runs over the same range keeps it.
TEST(Contract, SumsOfTheSameRange) {
  for (const int64_t n_terms : {8, 15, 16, 17, 32})
    for (const auto& [m, n, turned] :
         {std::tuple<int64_t, int64_t, bool>{1, 7, false}, {3, 5, false}, {4, 20, false}, {3, 5, true}, {17, 17, true}}) {
      zoo::Ranges r;
      const UOp i = r.out(m), j = r.out(n), q = r.sum(n_terms), a = zoo::at(zoo::buffer(1, m * n_terms), i * n_terms + q);
      const UOp b = zoo::at(zoo::buffer(2, n * n_terms), turned ? j * n_terms + q : q * n + j);
      const UOp product = zoo::sum_over(a * b, {q}), sum = zoo::sum_over(a, {q});
      EXPECT_EQ(check(zoo::sink({zoo::put(zoo::buffer(0, m * n), i * n + j, product + sum, {i, j})}), small()), "") << n_terms << " " << m;
    }
}

// Sums over lanes are folded together: an instruction adds parts of two vectors.
TEST(Contract, FoldsAreShared) {
  const Target t = small();
  for (const bool epilogue : {false, true}) {
    const UOp kernel = zoo::matmul({4, 4, 64, false, true, epilogue});
    ASSERT_NE(opts(kernel, t).find("dots"), std::string::npos);
    const UOp program = lower_kernel(kernel, t);
    EXPECT_EQ(count(program, Op::Fold), 0);
    EXPECT_EQ(check(kernel, t), "");
  }
}

// A sum in place reads what it overwrites: no output may be computed twice, as those of a last block that begins early are.
TEST(Contract, DotProductsAddedInPlace) {
  for (const int64_t m : {8, 17}) {
    zoo::Ranges r;
    const int64_t n = 3, k = 50;
    const UOp i = r.out(m), j = r.out(n), q = r.sum(k), to = zoo::buffer(0, m * n);
    const UOp sum = zoo::sum_over(zoo::at(zoo::buffer(1, m * k), i * k + q) * zoo::at(zoo::buffer(2, n * k), j * k + q), {q});
    const UOp kernel = zoo::sink({zoo::put(to, i * n + j, zoo::at(to, i * n + j) + sum, {i, j})});
    EXPECT_EQ(check(kernel, small()), "") << m;
    EXPECT_NE(opts(kernel, small()).find("dots"), std::string::npos) << m;
  }
}

// Factors of bfloat16 and of bytes are multiplied in groups, where the machine has an instruction for it: the same bits.
TEST(Contract, PackedFactors) {
  using zoo::at, zoo::buffer;
  std::mt19937 random(1);
  Target t = small(32 << 10);
  t.renderer = "llvm", t.vector_bytes = 64, t.n_vector_registers = 32, t.dots_bfloat16 = t.dots_bytes = true;
  const DType s8 = DType::Int8, u8 = DType::UInt8, b16 = DType::BFloat16;
  for (const auto& [a, b] : {std::pair(b16, b16), {s8, s8}, {u8, s8}, {s8, u8}, {u8, u8}})
    for (const zoo::MatmulShape& s :
         {zoo::MatmulShape{16, 64, 64}, {13, 33, 40}, {20, 70, 31}, {40, 17, 130}, {64, 64, 18}, {140, 70, 37}, {150, 70, 40}})
      for (const int transposed : {0, 1, 2, 3}) {
        zoo::Ranges r;
        const UOp i = r.out(s.m), j = r.out(s.n), k = r.sum(s.k);
        const DType dt = a == b16 ? DType::Float32 : DType::Int32;
        const UOp x = at(buffer(1, s.m * s.k, a), transposed & 1 ? k * s.m + i : i * s.k + k);
        const UOp y = at(buffer(2, s.k * s.n, b), transposed & 2 ? j * s.k + k : k * s.n + j);
        const UOp kernel = zoo::sink({zoo::put(buffer(0, s.m * s.n, dt), i * s.n + j, zoo::sum_over(cast(x, dt) * cast(y, dt), {k}), {i, j})});
        const UOp program = lower_kernel(kernel, t);
        const std::string what = fmt::format("{} x {} of {}x{}x{}, {}: {}", a, b, s.m, s.n, s.k, transposed, to_text(program.src(0).arg()));
        int n_packed = 0;
        for (const Node* n : program->src()[1]->src()) n_packed += n->op == Op::MulAcc && n->src()[0]->dtype == DType::UInt32;
        EXPECT_GT(n_packed, 0) << what;
        testing::KernelMemory want(kernel);
        for (size_t slot = 1; slot < 3 && a != b16; ++slot)
          for (std::byte& e : want.bytes[slot]) e = static_cast<std::byte>(random());
        testing::KernelMemory have = want, compiled = want;
        const auto p = want.pointers(), q = have.pointers(), c = compiled.pointers();
        Target plain = t;
        plain.dots_bfloat16 = plain.dots_bytes = false;
        evaluate_linear(lower_kernel(kernel, plain), p);
        evaluate_linear(program, q);
        EXPECT_TRUE(want.bytes[0] == have.bytes[0]) << what;
        if (!WHIT_LLVM || !host_target().dots_bfloat16 || !host_target().dots_bytes) continue;
        const testing::BuiltKernel built(program);
        built.run(c.data(), 0, built.info.extent);
        EXPECT_TRUE(want.bytes[0] == compiled.bytes[0]) << what << ", compiled";
      }
}

// Where the window's row is short, the terms of a group are those of neighbouring channels.
TEST(Contract, PackedFactorsOfWindows) {
  using zoo::at, zoo::buffer;
  std::mt19937 random(1);
  Target t = small(64 << 10);
  t.renderer = "llvm", t.vector_bytes = 64, t.n_vector_registers = 32, t.dots_bfloat16 = t.dots_bytes = true;
  for (const DType a : {DType::BFloat16, DType::Int8})
    for (const auto& [n, ci, co, h, w] : {std::array{2, 16, 24, 9, 20}, {1, 17, 40, 5, 33}, {3, 32, 50, 4, 50}}) {
      zoo::Ranges r;
      const DType dt = a == DType::BFloat16 ? DType::Float32 : DType::Int32;
      const UOp b = r.out(n), o = r.out(co), y = r.out(h), x = r.out(w), c = r.sum(ci), ky = r.sum(3), kx = r.sum(3);
      const UOp image = at(buffer(1, n * ci * (h + 2) * (w + 2), a), ((b * ci + c) * (h + 2) + y + ky) * (w + 2) + x + kx);
      const UOp weight = at(buffer(2, co * ci * 9, a), ((o * ci + c) * 3 + ky) * 3 + kx);
      const UOp sum = zoo::sum_over(cast(image, dt) * cast(weight, dt), {c, ky, kx});
      const UOp kernel = zoo::sink({zoo::put(buffer(0, n * co * h * w, dt), ((b * co + o) * h + y) * w + x, sum, {b, o, y, x})});
      const UOp program = lower_kernel(kernel, t);
      const std::string what = fmt::format("{} {} {}: {}", a, ci, co, to_text(program.src(0).arg()));
      int n_packed = 0;
      for (const Node* m : program->src()[1]->src()) n_packed += m->op == Op::MulAcc && m->src()[0]->dtype == DType::UInt32;
      EXPECT_GT(n_packed, 0) << what;
      testing::KernelMemory want(kernel);
      for (size_t slot = 1; slot < 3 && a == DType::Int8; ++slot)
        for (std::byte& e : want.bytes[slot]) e = static_cast<std::byte>(random());
      testing::KernelMemory have = want;
      const auto p = want.pointers(), q = have.pointers();
      Target plain = t;
      plain.dots_bfloat16 = plain.dots_bytes = false;
      evaluate_linear(lower_kernel(kernel, plain), p);
      evaluate_linear(program, q);
      EXPECT_TRUE(a != DType::Int8 || want.bytes[0] == have.bytes[0]) << what;
      const auto *f = static_cast<const float*>(p[0]), *g = static_cast<const float*>(q[0]);
      for (int64_t i = 0; i < n * co * h * w && a != DType::Int8; ++i) ASSERT_NEAR(f[i], g[i], 1e-4 * (1 + std::abs(f[i]))) << what;
    }
}

// What a product of bfloat16 or of bytes costs besides its dots.
TEST(Contract, PackedFactorsAreReadInVectors) {
  Target t = small(1 << 20);
  t.renderer = "llvm", t.vector_bytes = 64, t.n_vector_registers = 32, t.dots_bfloat16 = t.dots_bytes = true;
  const auto product = [](DType a, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed) {
    zoo::Ranges r;
    const DType dt = a == DType::BFloat16 ? DType::Float32 : DType::Int32;
    const UOp i = r.out(m), j = r.out(n), q = r.sum(k);
    const UOp x = zoo::at(zoo::buffer(1, m * k, a), a_transposed ? q * m + i : i * k + q);
    const UOp y = zoo::at(zoo::buffer(2, k * n, a), b_transposed ? j * k + q : q * n + j);
    return zoo::sink({zoo::put(zoo::buffer(0, m * n, dt), i * n + j, zoo::sum_over(cast(x, dt) * cast(y, dt), {q}), {i, j})});
  };
  for (const DType a : {DType::BFloat16, DType::Int8}) {
    // What all parts of a launch pack does not keep it on one thread.
    for (const bool b_transposed : {false, true}) {
      const ProgramInfo info = ProgramInfo::of(lower_kernel(product(a, 512, 512, 512, false, b_transposed), t));
      EXPECT_EQ(info.extent / info.min_part, 2) << fmt::format("{}, {}", a, b_transposed);
    }
    for (const bool a_transposed : {false, true})
      for (const int64_t n : {512, 1024, 2048}) {
        const UOp program = lower_kernel(product(a, n, n, n, a_transposed, false), t);
        const std::string what = fmt::format("{} {} {}", a, n, a_transposed);
        int n_scalars = 0, n_widened = 0;
        for (const Node* u : program->src()[1]->src()) {
          n_scalars += u->op == Op::Load && u->dtype == a && u->shape.empty();
          n_widened += u->op == Op::Cast && u->dtype == DType::Int32;
        }
        EXPECT_EQ(n_scalars, 0) << what;
        EXPECT_EQ(n_widened, 0) << what;  // rows of bytes are summed by dots, too
        EXPECT_EQ(to_text(program.src(0).arg()).find("strip") != std::string::npos, a_transposed) << what;
      }
    // Packing is not repaid by two or three rows.
    for (const int64_t m : {2, 3, 4})
      EXPECT_EQ(opts(product(a, m, 1000, 256, false, true), t).find("contract") != std::string::npos, m == 4) << fmt::format("{}, {} rows", a, m);
  }
}

// Accesses of memory, in loops or not, that are not one vector along it: gathers, scatters and single elements.
int count_scattered(const UOp& program) {
  int n = 0;
  for (const Node* m : program->src()[1]->src())
    if (m->op == Op::Store || m->op == Op::Load) {
      const Node *at = m->src()[0], *value = m->op == Op::Store ? m->src()[1] : m;
      n += at->op == Op::Index && (!UOp(at->src()[1]).shape().empty() || UOp(value).shape().empty());
    }
  return n;
}

// Rows shorter than a vector: lanes run over all of the output, and what they read is vectors along memory, shuffled.
TEST(JoinedRows, AreReadAndStoredAlongMemory) {
  Target t = small(1 << 20);
  t.vector_bytes = 64;
  t.n_vector_registers = 32;
  using S = zoo::MatmulShape;
  for (const S& s : {S{17, 3, 3}, S{17, 3, 7}, S{100, 3, 7}, S{7, 3, 7, true}, S{100, 7, 1}, S{1000, 7, 1, false, true}, S{64, 7, 3}, S{3, 3, 3},
                     S{333, 3, 3, true, true, true}, S{1000, 2, 2}, S{64, 7, 1, false, false, true, 3}}) {
    const std::string name = fmt::format("{}x{}x{}", s.m, s.n, s.k);
    EXPECT_NE(opts(zoo::matmul(s), t).find("joined"), std::string::npos) << name;
    EXPECT_EQ(check(zoo::matmul(s), t), "") << name;
    EXPECT_EQ(count_scattered(lower_kernel(zoo::matmul(s), t)), 0) << name;
    for (const int vector_bytes : {16, 32}) {
      Target narrow = t;
      narrow.vector_bytes = vector_bytes;
      EXPECT_EQ(check(zoo::matmul(s), narrow), "") << name;
    }
  }
  zoo::Ranges r;
  const UOp i = r.out(1001), c = r.out(3);
  const UOp pixel = cast(zoo::at(zoo::buffer(1, 3003, DType::UInt8), i * 3 + c), DType::Float32);
  const UOp kernel =
      zoo::sink({zoo::put(zoo::buffer(0, 3003), i * 3 + c, (pixel - zoo::at(zoo::buffer(2, 3), c)) * zoo::at(zoo::buffer(3, 3), c), {i, c})});
  EXPECT_EQ(check(kernel, t), "");
  EXPECT_EQ(count_scattered(lower_kernel(kernel, t)), 0);
}

// Tiles whose rows follow each other in the output, and what is packed across memory: squares, no elements.
TEST(Contract, SquaresAreTransposed) {
  Target t = small(1 << 20);
  t.vector_bytes = 64;
  t.n_vector_registers = 32;
  using S = zoo::MatmulShape;
  for (const S& s : {S{64, 16, 17, true, true}, S{32, 24, 20, true, true, true}, S{64, 24, 17, true, true, false, 2}, S{64, 64, 64, false, true},
                     S{48, 96, 17, false, true}, S{100, 64, 100, false, true}}) {
    EXPECT_NE(opts(zoo::matmul(s), t).find(s.a_transposed ? "across" : "pack"), std::string::npos) << s.m;
    EXPECT_EQ(check(zoo::matmul(s), t), "") << s.m;
    const UOp program = lower_kernel(zoo::matmul(s), t);
    int n_gathers = 0, n_stored = 0;
    for (const Node* m : program->src()[1]->src()) {
      n_gathers += m->op == Op::Load && m->src()[0]->op == Op::Index && !UOp(m->src()[0]->src()[1]).shape().empty();
      n_stored += m->op == Op::Store && UOp(m->src()[1]).shape().empty();
    }
    EXPECT_EQ(n_gathers + n_stored, 0) << s.m;
  }
  // Rows of whole pages share a cache set: storing lanes one by one took as long as the product.
  const std::string pages = opts(zoo::matmul({64, 1024, 1024, false, true}), t);
  EXPECT_NE(pages.find("across"), std::string::npos) << pages;
}

// What would be computed again for each column, or reads what it overwrites, stays as it is.
TEST(JoinedRows, OnlyWhereNothingIsRepeated) {
  const Target t = small(1 << 20);
  zoo::Ranges r;
  const UOp i = r.out(100), j = r.out(3), k = r.sum(3), to = zoo::buffer(0, 300);
  const UOp row = zoo::at(zoo::buffer(1, 100), i), at = i * 3 + j, x = zoo::at(zoo::buffer(2, 300), at);
  const UOp sum = zoo::sum_over(zoo::at(zoo::buffer(2, 300), i * 3 + k), {k});
  for (const UOp& value : {x * alu(Op::Exp2, {row}), x - sum, zoo::at(to, at) + row}) {
    const UOp kernel = zoo::sink({zoo::put(to, at, value, {i, j})});
    EXPECT_EQ(opts(kernel, t).find("joined"), std::string::npos);
    EXPECT_EQ(check(kernel, t), "");
  }
}

TEST(Contract, MatmulThatIsChunkedOrCut) {
  EXPECT_EQ(check(zoo::matmul({100, 300, 130}), small(32 << 10)), "");
  EXPECT_EQ(check(zoo::matmul({100, 300, 130, false, true, true}), small(4 << 10)), "");
  EXPECT_EQ(check(zoo::matmul({40, 50, 30, false, true, true, 3}), small(4 << 10)), "");
}

TEST(Contract, Convolutions) {
  for (const zoo::ConvShape& s :
       {zoo::ConvShape{3, 1, 32, 14, 14, 5, 5}, zoo::ConvShape{2, 5, 32, 11, 12, 3, 3}, zoo::ConvShape{2, 7, 10, 9, 9, 3, 3, 1},
        zoo::ConvShape{1, 16, 33, 8, 8, 3, 3}, zoo::ConvShape{2, 3, 64, 10, 10, 1, 1}})
    for (const int64_t l2 : {int64_t{4} << 10, int64_t{1} << 20}) {
      EXPECT_EQ(check(zoo::conv_forward(s), small(l2)), "");
      EXPECT_EQ(check(zoo::conv_data_gradient(s), small(l2)), "");
      EXPECT_EQ(check(zoo::conv_weight_gradient(s), small(l2)), "");
    }
}

// Lanes run over the rows of an image with a margin; what they compute in the margin is not stored.
TEST(Contract, ImagesWithAMargin) {
  Target t = small(1 << 20);
  t.vector_bytes = 64;
  t.n_vector_registers = 32;
  for (const zoo::ConvShape& s : {zoo::ConvShape{1, 32, 64, 9, 9, 3, 3}, zoo::ConvShape{2, 16, 40, 16, 16, 3, 3},
                                  zoo::ConvShape{1, 16, 20, 9, 12, 3, 2}, zoo::ConvShape{1, 32, 32, 30, 30, 3, 3}}) {
    EXPECT_EQ(check(zoo::conv_forward(s), t), "");
    EXPECT_NE(opts(zoo::conv_forward(s), t).find("blocks"), std::string::npos) << s.h << " " << s.w;
    EXPECT_EQ(check(zoo::conv_data_gradient_of_halo(s), t), "");
  }
  // Few columns are mostly margin.
  EXPECT_EQ(opts(zoo::conv_forward({1, 16, 64, 8, 8, 5, 5}), t).find("blocks"), std::string::npos);
}

// Strides, dilations, padding, groups, prologues; on machines with other caches and vectors.
TEST(Contract, RandomConvolutions) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    std::mt19937 gen(seed);
    auto pick = [&](int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(gen() % static_cast<unsigned>(hi - lo + 1)); };
    const int64_t n = pick(1, 4), groups = pick(1, 2), ci = pick(1, 9), co = pick(1, 40), kh = pick(1, 4), kw = pick(1, 4), stride = pick(1, 2),
                  dilation = pick(1, 2), pad = pick(0, 2), oh = pick(1, 9), ow = pick(1, 14);
    const int64_t h = (oh - 1) * stride + dilation * (kh - 1) + 1 - 2 * pad, w = (ow - 1) * stride + dilation * (kw - 1) + 1 - 2 * pad;
    if (h < 1 || w < 1) continue;
    const int64_t n_x = n * groups * ci * h * w, n_w = groups * co * ci * kh * kw, n_out = n * groups * co * oh * ow;
    Target t = small(int64_t{1} << pick(11, 20), static_cast<int>(pick(1, 4)));
    if (pick(0, 2) == 0) {
      t.vector_bytes = 32;
      t.n_vector_registers = 16;
    }
    auto image = [&](int64_t slot, const UOp& b, const UOp& c, const UOp& y, const UOp& x) {
      UOp gate;
      if (pad) gate = ge(y, 0) & lt(y, h) & ge(x, 0) & lt(x, w);
      return zoo::at(zoo::buffer(slot, n_x), ((b * groups * ci + c) * h + y) * w + x, gate);
    };
    SCOPED_TRACE(fmt::format("seed {}", seed));
    {
      zoo::Ranges r;
      const UOp b = r.out(n), g = r.out(groups), o = r.out(co), y = r.out(oh), x = r.out(ow), i = r.sum(ci), ky = r.sum(kh), kx = r.sum(kw);
      UOp in = image(1, b, g * ci + i, y * stride + ky * dilation - pad, x * stride + kx * dilation - pad);
      if (pick(0, 3) == 0) in = zoo::relu(in);
      UOp wt = zoo::at(zoo::buffer(2, n_w), (((g * co + o) * ci + i) * kh + ky) * kw + kx);
      if (pick(0, 5) == 0) wt = wt * zoo::f32(0.5);
      UOp v = zoo::sum_over(pick(0, 1) ? in * wt : wt * in, {i, ky, kx});
      if (pick(0, 1)) v = zoo::relu(v + zoo::at(zoo::buffer(3, groups * co), g * co + o));
      EXPECT_EQ(check(zoo::sink({zoo::put(zoo::buffer(0, n_out), (((b * groups + g) * co + o) * oh + y) * ow + x, v, {b, g, o, y, x})}), t), "");
    }
    zoo::Ranges r;
    const UOp g = r.out(groups), o = r.out(co), i = r.out(ci), ky = r.out(kh), kx = r.out(kw), b = r.sum(n), y = r.sum(oh), x = r.sum(ow);
    const UOp in = image(1, b, g * ci + i, y * stride + ky * dilation - pad, x * stride + kx * dilation - pad);
    const UOp d = zoo::at(zoo::buffer(2, n_out), (((b * groups + g) * co + o) * oh + y) * ow + x);
    EXPECT_EQ(check(zoo::sink({zoo::put(zoo::buffer(0, n_w), (((g * co + o) * ci + i) * kh + ky) * kw + kx, zoo::sum_over(in * d, {b, y, x}),
                                        {g, o, i, ky, kx})}),
                    t),
              "");
  }
}

TEST(Contract, DtypesPrologueAndEpilogue) {
  const int64_t m = 19, n = 37, k = 24;
  for (const DType dt : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64, DType::Int32, DType::Int8}) {
    const DType sum = dt == DType::Float64 ? dt : dt == DType::Int32 || dt == DType::Int8 ? DType::Int32 : DType::Float32;
    zoo::Ranges r;
    const UOp i = r.out(m), j = r.out(n), q = r.sum(k);
    const UOp x = cast(zoo::at(zoo::buffer(1, m * k, dt), i * k + q), sum);
    const UOp y = cast(zoo::at(zoo::buffer(2, n * k, dt), j * k + q), sum);
    EXPECT_EQ(check(zoo::sink({zoo::put(zoo::buffer(0, m * n, sum), i * n + j, zoo::sum_over(x * y, {q}), {i, j})}), small()), "") << name(dt);
  }
  zoo::Ranges r;
  const UOp i = r.out(m), j = r.out(n), q = r.sum(k);
  const UOp x = zoo::relu(zoo::at(zoo::buffer(1, m * k), i * k + q) + zoo::at(zoo::buffer(4, k), q));
  const UOp y = zoo::at(zoo::buffer(2, n * k), q * n + j) * zoo::at(zoo::buffer(5, n), j);
  const UOp z = zoo::sum_over(x * y, {q});
  const UOp residual = zoo::at(zoo::buffer(3, m * n), i * n + j);
  EXPECT_EQ(check(zoo::sink({zoo::put(zoo::buffer(0, m * n), i * n + j, z + residual, {i, j}),
                             zoo::put(zoo::buffer(6, m * n), j * m + i, zoo::relu(z), {i, j})}),
                  small()),
            "");
  // In place: the output is read where it is written.
  const UOp in_place = zoo::at(zoo::buffer(0, m * n), i * n + j);
  EXPECT_EQ(check(zoo::sink({zoo::put(zoo::buffer(0, m * n), i * n + j, in_place + z, {i, j})}), small()), "");
}

// The gradient of an input whose output went through a relu: the mask is applied while the window is staged.
TEST(Contract, MaskedGradient) {
  const zoo::ConvShape s{3, 7, 20, 11, 12, 3, 5};
  zoo::Ranges r;
  const UOp b = r.out(s.b), ci = r.out(s.ci), y = r.out(s.h), x = r.out(s.w), ky = r.sum(s.kh), kx = r.sum(s.kw), co = r.sum(s.co);
  const UOp gy = y - ky, gx = x - kx, inside = ge(gy, 0) & lt(gy, s.oh()) & ge(gx, 0) & lt(gx, s.ow());
  const UOp flat = ((b * s.co + co) * s.oh() + gy) * s.ow() + gx;
  const UOp before = zoo::at(zoo::buffer(3, s.n_out()), flat, inside) + zoo::at(zoo::buffer(4, s.co), co);
  const UOp g = where(lt(before, zoo::f32(0)), zoo::f32(0), zoo::at(zoo::buffer(1, s.n_out()), flat, inside));
  const UOp w = zoo::at(zoo::buffer(2, s.n_w()), ((co * s.ci + ci) * s.kh + ky) * s.kw + kx);
  const UOp k = zoo::sink({zoo::put(zoo::buffer(0, s.n_x()), ((b * s.ci + ci) * s.h + y) * s.w + x,
                                    zoo::sum_over(where(inside, g, zoo::f32(0)) * w, {ky, kx, co}), {b, ci, y, x})});
  EXPECT_EQ(check(k, small(int64_t{1} << 20)), "");
  EXPECT_NE(opts(k, small(int64_t{1} << 20)).find("stage"), std::string::npos);
}

TEST(FarSums, AreCutAndRestInATile) {
  Target t = testing::test_target();
  t.n_cores = 2;
  for (const UOp& k : {zoo::column_sums(700, 1000), zoo::column_sums(515, 643), zoo::channel_sums(130, 24, 37), zoo::channel_sums(100, 48, 100)}) {
    EXPECT_NE(opts(k, t).find("cut"), std::string::npos);
    EXPECT_EQ(check(k, t), "");
  }
  // Two results of two reduces, one a maximum.
  zoo::Ranges r;
  const UOp c = r.out(36), b = r.sum(300), s = r.sum(20);
  const UOp x = zoo::at(zoo::buffer(2, 300 * 36 * 20), (b * 36 + c) * 20 + s);
  const UOp most = reduce(x, "max", std::vector<UOp>{b, s}), sum = zoo::sum_over(x * x, {b, s});
  const UOp k = zoo::sink({zoo::put(zoo::buffer(0, 36), c, most + sum, {c}), zoo::put(zoo::buffer(1, 36), c, most, {c})});
  EXPECT_NE(opts(k, t).find("cut"), std::string::npos);
  EXPECT_EQ(check(k, t), "");
}

TEST(Contract, WhatIsCounted) {
  Target t = testing::test_target();
  t.vector_bytes = 64;
  t.n_vector_registers = 32;
  t.n_cores = 2;
  t.l2_bytes = 1 << 20;
  // 8 x 3 vectors; one GLOBAL, rows, panels and the sum; B is packed.
  const UOp p = lower_kernel(zoo::matmul({1024, 960, 1024}), t);
  EXPECT_EQ(count(p, Op::MulAcc), 24);
  EXPECT_EQ(count(p, Op::Reg), 24);
  EXPECT_EQ(count(p, Op::Scratch), 1);
  // The last columns are a narrower tile: what both hold does not fit into the registers, so each has a loop of its own.
  const UOp q = lower_kernel(zoo::matmul({48, 100, 64}), t);
  EXPECT_EQ(count(q, Op::Reg), 6 * 4 + 6 * 3);
  EXPECT_EQ(most_accumulators(q), 24);
  // The gradient of a convolution's input: weights packed, the padded window staged, the sums of a tile.
  const UOp g = lower_kernel(zoo::conv_data_gradient({8, 32, 32, 24, 24, 5, 5}), t);
  EXPECT_EQ(count(g, Op::Scratch), 3);
  EXPECT_GE(count(g, Op::MulAcc), 20);
  EXPECT_NE(opts(zoo::conv_weight_gradient({512, 32, 32, 24, 24, 5, 5}), t).find("cut"), std::string::npos);
}

}  // namespace
}  // namespace whit
