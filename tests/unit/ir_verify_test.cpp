#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/build.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace whit;

namespace {

std::string tensor(std::string_view text) { return find_illegal(parse_text(text), Level::Tensor); }
std::string kernel(std::string_view text) { return find_illegal(parse_text(text), Level::Kernel); }
std::string program(std::string_view text) { return find_illegal(parse_text(text), Level::Program); }

TEST(IrVerify, LegalTensorGraph) {
  EXPECT_EQ(tensor(R"(
    %b = BUFFER float32 {0, "CPU", 12}
    %x = RESHAPE float32 (%b) [3, 4]
    %s = REDUCE float32 (%x) {"add", 1}
    %c = CONST float32 0.25
    %m = MUL float32 (%s, %c)
    %v = SHRINK float32 (%x) [0, 3, 0, 1]
    %w = STORE void (%v, %m)
    %a = AFTER float32 (%b, %w)
    %e = EXPAND float32 (%m) [3, 4]
    %l = CMPLT bool (%x, %e)
    %r = WHERE float32 (%l, %x, %c)
    %k = SINK void (%r, %a))"),
            "");
}

TEST(IrVerify, DTypes) {
  EXPECT_EQ(tensor("%0 = CONST int32 1\n%1 = CONST int64 1\n%2 = ADD int32 (%0, %1)"),
            "%2 = ADD int32 (%0, %1): the sources and the result must have one dtype [same-dtype] in a tensor graph");
  EXPECT_EQ(tensor("%0 = CONST int32 1\n%1 = CMPLT int32 (%0, %0)"),
            "%1 = CMPLT int32 (%0, %0): a comparison is a bool of two sources of one dtype [compare-dtype] in a tensor "
            "graph");
  EXPECT_EQ(tensor("%0 = CONST int32 1\n%1 = WHERE int32 (%0, %0, %0)"),
            "%1 = WHERE int32 (%0, %0, %0): the condition must be bool and both choices must have the result's dtype "
            "[where-dtype] in a tensor graph");
  EXPECT_EQ(tensor("%0 = CONST int32 1\n%1 = SQRT int32 (%0)"), "%1 = SQRT int32 (%0): it is for floats only [floats-only] in a tensor graph");
  EXPECT_EQ(tensor("%0 = CONST float32 1.0\n%1 = FLOORDIV float32 (%0, %0)"),
            "%1 = FLOORDIV float32 (%0, %0): it is for ints only [ints-only] in a tensor graph");
  EXPECT_EQ(tensor("%0 = CONST float32 1.0\n%1 = XOR float32 (%0, %0)"),
            "%1 = XOR float32 (%0, %0): it is for ints and bool only [bits-only] in a tensor graph");
  EXPECT_EQ(tensor("%0 = CONST bool true\n%1 = NEG bool (%0)"), "%1 = NEG bool (%0): it is not for bool [no-bool] in a tensor graph");
  EXPECT_EQ(tensor("%0 = CONST int32 1\n%1 = THREEFRY int32 (%0, %0)"),
            "%1 = THREEFRY int32 (%0, %0): it is for uint64 only [threefry-dtype] in a tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM int32 [0, 2]\n%1 = FLIP int64 (%0) [0]"),
            "%1 = FLIP int64 (%0) [0]: it must have the dtype of its first source [first-dtype] in a tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM void [0, 2]"),
            "%0 = PARAM void [0, 2]: it has a value, so its dtype must not be void [values-are-not-void] in a tensor "
            "graph");
  EXPECT_EQ(tensor("%0 = SINK int32"), "%0 = SINK int32: it has no value, so its dtype must be void [effects-are-void] in a tensor graph");
}

TEST(IrVerify, TensorOps) {
  EXPECT_EQ(tensor("%0 = RANGE weakint [0, 0, 4]"), "%0 = RANGE weakint [0, 0, 4]: no tensor graph has this op [tensor-ops] in a tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM int32 [0, 2, 2]\n%1 = REDUCE int32 (%0) {\"add\", 1, 0}"),
            "%1 = REDUCE int32 (%0) {\"add\", 1, 0}: it must have one source and reduce axes in ascending order, each once "
            "[reduce-axes] in a tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM int32 [0, 2, 2]\n%1 = REDUCE int32 (%0) {\"sum\", 1}"),
            "%1 = REDUCE int32 (%0) {\"sum\", 1}: its monoid must be add, mul, max or min [monoid] in a tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM float32 [0, 2]\n%1 = GATHER float32 (%0, %0)"),
            "%1 = GATHER float32 (%0, %0): its second source must be integers [gather-index] in a tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM float32 [0, 1]\n%1 = EXPAND float32 (%0) [3]\n%2 = STORE void (%1, %1)\n"
                   "%3 = AFTER float32 (%0, %2)"),
            "%3 = AFTER float32 (%0, %2): its STOREs must go to views of it that hold no element twice [store-target] in a "
            "tensor graph");
  EXPECT_EQ(tensor("%0 = PARAM float32 [0, 1]\n%1 = EXPAND float32 (%0) [3]\n%2 = STORE void (%1, %1)\n"
                   "%3 = AFTER float32 (%1, %2)"),
            "");
  EXPECT_EQ(tensor("%0 = PARAM float32 [0, 3]\n%1 = CONST int32 1\n%2 = STORE void (%0, %1)"),
            "%2 = STORE void (%0, %1): the value must have the dtype and the shape of the view [store-value] in a tensor "
            "graph");
}

constexpr std::string_view kKernel = R"(
    %in = PARAM float32 [1, 12]
    %out = PARAM float32 [0, 3]
    %i = RANGE weakint [0, 0, 3]
    %k = RANGE weakint [1, 5, 4]
    %four = CONST weakint 4
    %row = MUL weakint (%i, %four)
    %at = ADD weakint (%row, %k)
    %ix = INDEX float32 (%in, %at)
    %x = LOAD float32 (%ix)
    %s = REDUCE float32 (%x, %k) {"add"}
    %ox = INDEX float32 (%out, %i)
    %st = STORE void (%ox, %s)
    %e = END void (%st, %i)
    %z = SINK void (%e) {"k"})";

TEST(IrVerify, LegalKernel) {
  EXPECT_EQ(kernel(kKernel), "");
  // A tensor graph that calls it: the kernel is checked as a kernel.
  const UOp b = buffer(DType::Float32, 3, "CPU"), c = buffer(DType::Float32, 12, "CPU");
  const UOp call = UOp::make(Op::Call, DType::Void, {parse_text(kKernel), b, c});
  EXPECT_EQ(find_illegal(UOp::make(Op::Linear, DType::Void, {call}), Level::Tensor), "");
}

TEST(IrVerify, Kernels) {
  const auto changed = [](std::string_view from, std::string_view to) {
    std::string text(kKernel);
    text.replace(text.find(from), from.size(), to);
    return kernel(text);
  };
  EXPECT_EQ(changed("END void (%st, %i)", "END void (%st)"),
            "%13 = SINK void (%12) {\"k\"}: a loop is never ended [all-loops-end] in a kernel graph");
  EXPECT_EQ(changed("RANGE weakint [1, 5, 4]", "RANGE weakint [0, 5, 4]"),
            "%10 = REDUCE float32 (%9, %6) {\"add\"}: two loops that are open at once have the same id [range-ids] in a "
            "kernel graph");
  EXPECT_EQ(changed("RANGE weakint [1, 5, 4]", "RANGE weakint [1, 77, 4]"),
            "%6 = RANGE weakint [1, 77, 4]: its argument must be [id, axis type, size] [range-arg] in a kernel graph");
  EXPECT_EQ(changed("REDUCE float32 (%x, %k)", "REDUCE float32 (%x, %at)"),
            "%10 = REDUCE float32 (%9, %7) {\"add\"}: what follows its value must be RANGEs, one at least [reduce-ranges] "
            "in a kernel graph");
  EXPECT_EQ(changed("INDEX float32 (%in, %at)", "INDEX float32 (%in, %at, %i)"),
            "%8 = INDEX float32 (%3, %7, %1): its third source is a gate and must be bool [index-gate] in a kernel graph");
  EXPECT_EQ(changed("%x = LOAD float32 (%ix)", "%x = FLIP float32 (%in) [0]"),
            "%4 = FLIP float32 (%3) [0]: no kernel graph has this op [kernel-ops] in a kernel graph");
  EXPECT_EQ(changed("PARAM float32 [0, 3]", "PARAM float32 [0, 3, 1]"),
            "%0 = PARAM float32 [0, 3, 1]: a buffer of a kernel has shape (number of elements) [kernel-param] in a kernel "
            "graph");
  EXPECT_EQ(changed("LOAD float32 (%ix)", "LOAD float32 (%ix) 4"),
            "%9 = LOAD float32 (%8) 4: values of a kernel have shape () [kernel-scalars] in a kernel graph");
}

constexpr std::string_view kProgram = R"(
    %in = PARAM float32 [1, 12]
    %out = PARAM float32 [0, 3]
    %zero = CONST float32 0.0
    %four = CONST int64 4
    %acc = REG float32 [0, 1]
    %i = RANGE int64 [0, 1, 3]
    %clear = STORE void (%acc, %zero)
    %k = RANGE int64 [1, 5, 4]
    %row = MUL int64 (%i, %four)
    %at = ADD int64 (%row, %k)
    %ix = INDEX float32 (%in, %at)
    %x = LOAD float32 (%ix)
    %have = LOAD float32 (%acc)
    %sum = ADD float32 (%have, %x)
    %add = STORE void (%acc, %sum)
    %ek = ENDRANGE void (%k)
    %ox = INDEX float32 (%out, %i)
    %st = STORE void (%ox, %have)
    %ei = ENDRANGE void (%i)
    %z = LINEAR void (LIST))";

std::string program_list(std::string_view list) {
  std::string text(kProgram);
  text.replace(text.find("LIST"), 4, list);
  return program(text);
}

TEST(IrVerify, Programs) {
  EXPECT_EQ(program_list("%in, %out, %zero, %four, %acc, %i, %clear, %k, %row, %at, %x, %have, %sum, %add, %ek, %have, "
                         "%st, %ei"),
            "");
  EXPECT_EQ(program_list("%in, %out, %zero, %four, %acc, %i, %clear, %k, %at, %row, %ek, %ei"),
            "%9 = ADD int64 (%8, %7): its source MUL is not listed before it, or only in a loop that has ended "
            "[linear-order] in a LINEAR");
  EXPECT_NE(program_list("%in, %out, %zero, %four, %acc, %i, %clear, %k, %row, %at, %x, %have, %sum, %add, %ek, %st, %ei")
                .find("its source LOAD is not listed before it, or only in a loop that has ended [linear-order]"),
            std::string::npos);
  EXPECT_NE(program_list("%i, %k, %ei, %ek").find("it must close the RANGE or IF that was opened last [linear-nesting]"), std::string::npos);
  EXPECT_NE(program_list("%i, %k, %ek").find("it is not closed [linear-nesting]"), std::string::npos);
  EXPECT_EQ(program("%0 = RANGE weakint [0, 0, 3]\n%1 = LINEAR void (%0)"),
            "%0 = RANGE weakint [0, 0, 3]: weak dtypes are gone in a LINEAR [no-weak-dtype] in a LINEAR");
  EXPECT_EQ(program("%0 = CONST int64 3\n%1 = IF void (%0)\n%2 = LINEAR void (%0, %1)"),
            "%1 = IF void (%0): its condition must be bool [if-dtype] in a LINEAR");
  EXPECT_EQ(program("%0 = LANES int64 6\n%1 = FOLD int64 (%0) \"add\"\n%2 = LINEAR void (%0, %1)"),
            "%1 = FOLD int64 (%0) \"add\": the number of lanes must be a power of two [fold-lanes] in a LINEAR");
}

TEST(IrVerify, RaisesAnInternalErrorThatNamesThePass) {
  const UOp one = constant(DType::Int32, 1);
  EXPECT_NO_THROW(verify(one, Level::Tensor, "x"));
  try {
    verify(UOp::make(Op::Sqrt, DType::Int32, {one}), Level::Tensor, "gradient");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Internal);
    EXPECT_STREQ(e.what(), "[verify] after gradient: %1 = SQRT int32 (%0): it is for floats only [floats-only] in a tensor graph");
  }
}

TEST(IrVerify, ADeepChain) {
  UOp u = UOp::make(Op::Variable, DType::Int32, {}, Arg::list({"x", 0, 1}));
  for (int i = 0; i < 100'000; ++i) u = u + constant(DType::Int32, 1 + i % 2);
  EXPECT_EQ(find_illegal(u, Level::Tensor), "");
}

}  // namespace
