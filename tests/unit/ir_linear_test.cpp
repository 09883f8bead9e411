// The reference evaluator of LINEARs.
#include <gtest/gtest.h>

#include <numeric>

#include "interpret_linear.h"
#include "ir/interpret.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace whit;

namespace {

UOp program(std::string_view text) {
  const UOp u = parse_text(text);
  EXPECT_EQ(find_illegal(u, Level::Program), "");
  return u;
}

TEST(IrLinear, LoopsRegistersAndRepeatedLoads) {
  const UOp p = program(R"(
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
    %z = LINEAR void (%in, %out, %zero, %four, %acc, %i, %clear, %k, %row, %at, %x, %have, %sum, %add, %ek, %have, %st, %ei))");
  std::vector<float> in(12), out(3, -1.0f);
  std::iota(in.begin(), in.end(), 0.0f);
  void* buffers[] = {out.data(), in.data()};
  evaluate_linear(p, buffers, {}, 0, 1);
  EXPECT_EQ(out, (std::vector<float>{6, -1, -1}));
  evaluate_linear(p, buffers, {}, 1, 3);
  EXPECT_EQ(out, (std::vector<float>{6, 22, 38}));
}

// What a LINEAR lists, in the order of the text.
UOp whole_program(const std::string& text) {
  std::string list;
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    const size_t line = text.rfind('\n', at) + 1;
    if (text.find_first_not_of(' ', line) != at) continue;
    const std::string node = text.substr(at, text.find(' ', at) - at);
    list += (list.empty() ? "" : ", ") + node;
  }
  return program(text + "\n%list = LINEAR void (" + list + ")");
}

TEST(IrLinear, LanesGathersGatesAndFolds) {
  const UOp p = whole_program(R"(
    %in = PARAM int32 [1, 6]
    %out = PARAM int32 [0, 10]
    %zero = CONST int64 0
    %one = CONST int64 1
    %four = CONST int64 4
    %l = LANES int64 4
    %ax = INDEX int32 (%in, %one)
    %a = LOAD int32 (%ax) 4                 ; in[1..4]
    %rev = SUB int64 (%four, %l)
    %gx = INDEX int32 (%in, %rev)
    %g = LOAD int32 (%gx)                   ; in[4], in[3], in[2], in[1]
    %two = CONST int64 2
    %mask = CMPLT bool (%l, %two)
    %mx = INDEX int32 (%in, %l, %mask)
    %m = LOAD int32 (%mx)                   ; in[0], in[1], 0, 0
    %s = ADD int32 (%a, %g)
    %ox = INDEX int32 (%out, %zero)
    %st = STORE void (%ox, %s)
    %o4 = INDEX int32 (%out, %four)
    %st4 = STORE void (%o4, %m)
    %f = FOLD int32 (%a) "max"
    %v = VEC int32 (%f, %f)
    %last = LANE int32 (%v) 1
    %eight = CONST int64 8
    %o8 = INDEX int32 (%out, %eight)
    %st8 = STORE void (%o8, %last)
    %off = CONST bool false
    %o9 = INDEX int32 (%out, %eight, %off)
    %st9 = STORE void (%o9, %f))");
  std::vector<int32_t> in{10, 11, 12, 13, 14, 15}, out(10, -1);
  void* buffers[] = {out.data(), in.data()};
  evaluate_linear(p, buffers);
  EXPECT_EQ(out, (std::vector<int32_t>{25, 25, 25, 25, 10, 11, 0, 0, 14, -1}));
}

TEST(IrLinear, TwoNestsShareALaunchSpaceAndScratchIsPrivate) {
  const UOp p = whole_program(R"(
    %a = PARAM int64 [0, 2]
    %b = PARAM int64 [1, 3]
    %n = VARIABLE int64 {"n", 0, 9}
    %tile = SCRATCH int64 [0, 1]
    %zero = CONST int64 0
    %t = INDEX int64 (%tile, %zero)
    %fill = STORE void (%t, %n)
    %i = RANGE int64 [0, 1, 2]
    %ax = INDEX int64 (%a, %i)
    %x = LOAD int64 (%t)
    %sa = STORE void (%ax, %x)
    %ei = ENDRANGE void (%i)
    %j = RANGE int64 [1, 1, 3]
    %big = CMPLT bool (%zero, %j)
    %if = IF void (%big)
    %bx = INDEX int64 (%b, %j)
    %sb = STORE void (%bx, %j)
    %fi = ENDIF void (%if)
    %ej = ENDRANGE void (%j))");
  std::vector<int64_t> a(2, -1), b(3, -1);
  void* buffers[] = {a.data(), b.data()};
  evaluate_linear(p, buffers, {{"n", 7}}, 1, 4);  // the second of a, the first two of b
  EXPECT_EQ(a, (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(b, (std::vector<int64_t>{-1, 1, -1}));
  evaluate_linear(p, buffers, {{"n", 8}});
  EXPECT_EQ(a, (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(b, (std::vector<int64_t>{-1, 1, 2}));
}

}  // namespace
