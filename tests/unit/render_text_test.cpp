// The text of one small kernel in both languages, for readers and as a guard of what people see with DEBUG=4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel_run.h"

namespace whit {
namespace {

using ::testing::HasSubstr;

// out[i] = sum over j of in[4i + j], four lanes at a time, joined at the end.
UOp row_sums() {
  const int64_t out_dims[] = {3}, in_dims[] = {24}, reg[] = {0, 4};
  const UOp out = param(0, DType::Float32, out_dims), in = param(1, DType::Float32, in_dims);
  const UOp acc = UOp::make(Op::Reg, DType::Float32, {}, std::span<const int64_t>(reg));
  testing::Program p;
  const UOp i = p.range(3, AxisType::Global);
  p.store(acc, constant(DType::Float32, 0.0));
  const UOp j = p.range(2, AxisType::Reduce);
  const UOp at = p.add(p.add(i * 8) + p.add(j * 4));
  p.store(acc, p.alu(Op::Add, {p.load(acc), p.load(index(in, at), 4)}));
  p.end(j);
  p.store(index(out, i), p.add(UOp::make(Op::Fold, DType::Float32, {p.load(acc)}, Arg("add"))));
  p.end(i);
  return p.linear();
}

TEST(RenderText, Llvm) {
  EXPECT_THAT(renderer_by_name("llvm").render(row_sums(), "row_sums", host_target()), HasSubstr(R"(r1.loop:
  %r1 = phi i64 [ 0, %r0.loop ], [ %r1.next, %r1.latch ]
  %v2 = mul i64 %r1, 4
  %v3 = mul i64 %r0, 8
  %v4 = add i64 %v3, %v2
  %v5 = load <4 x float>, ptr %acc0
  %p6 = getelementptr float, ptr %data1, i64 %v4
  %v7 = load <4 x float>, ptr %p6, align 4, !alias.scope !4, !noalias !6
  %v8 = fadd <4 x float> %v5, %v7
  store <4 x float> %v8, ptr %acc0
  br label %r1.latch
r1.latch:
  %r1.next = add nuw nsw i64 %r1, 1
  %r1.more = icmp slt i64 %r1.next, 2
  br i1 %r1.more, label %r1.loop, label %r1.done
)"));
}

TEST(RenderText, C) {
  EXPECT_THAT(renderer_by_name("c").render(row_sums(), "row_sums", host_target()), HasSubstr(R"(  f32x4 acc0;
  const i64 r0_first = first > 0 ? first - 0 : 0, r0_end = last - 0 < 3 ? last - 0 : 3;
  for (i64 r0 = r0_first; r0 < r0_end; ++r0) {
    acc0 = ((f32x4){0x0p+0f, 0x0p+0f, 0x0p+0f, 0x0p+0f});
    for (i64 r1 = 0; r1 < 2; ++r1) {
      const i64 v2 = (i64)((u64)r1 * (u64)4ll);
      const i64 v3 = (i64)((u64)r0 * (u64)8ll);
      const i64 v4 = (i64)((u64)v3 + (u64)v2);
      const f32x4 v5 = acc0;
      const f32x4 v6 = *(const f32x4_u*)(data1 + v4);
      const f32x4 v7 = v5 + v6;
      acc0 = v7;
    }
    const f32x4 v8 = acc0;
    const f32x2 v9 = __builtin_shufflevector(v8, v8, 0, 1);
    const f32x2 v10 = __builtin_shufflevector(v8, v8, 2, 3);
    const f32x2 v11 = v9 + v10;
    const f32x1 v12 = __builtin_shufflevector(v11, v11, 0);
    const f32x1 v13 = __builtin_shufflevector(v11, v11, 1);
    const f32x1 v14 = v12 + v13;
    const f32 v15 = v14[0];
    data0[r0] = v15;
  }
)"));
}

}  // namespace
}  // namespace whit
