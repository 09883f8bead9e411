#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/dtype.h"

using namespace whit;

namespace {

constexpr DType kAllTypes[] = {DType::Bool,      DType::WeakInt,  DType::Int8,        DType::UInt8,   DType::Int16,
                               DType::UInt16,    DType::Int32,    DType::UInt32,      DType::Int64,   DType::UInt64,
                               DType::WeakFloat, DType::Fp8E4M3,  DType::Fp8E4M3FNUZ, DType::Fp8E5M2, DType::Fp8E5M2FNUZ,
                               DType::Float16,   DType::BFloat16, DType::Float32,     DType::Float64};

TEST(IrDType, PromotionFacts) {
  using enum DType;
  const struct {
    DType a, b, want;
  } kFacts[] = {{Int8, UInt8, Int16},         {UInt8, UInt16, UInt16},         {UInt32, Int32, Int64},
                {UInt64, Int64, WeakFloat},   {UInt64, Int8, WeakFloat},       {Int64, Float16, Float16},
                {Fp8E4M3, Fp8E5M2, Float16},  {Fp8E4M3, Fp8E4M3FNUZ, Float16}, {Fp8E4M3, BFloat16, BFloat16},
                {Float16, BFloat16, Float32}, {Float32, Float64, Float64},     {Bool, WeakInt, WeakInt},
                {WeakInt, UInt8, UInt8},      {WeakFloat, Int32, WeakFloat},   {WeakFloat, Fp8E5M2, Fp8E5M2},
                {Bool, Int8, Int8},           {WeakInt, WeakFloat, WeakFloat}, {UInt16, Int16, Int32}};
  for (const auto& f : kFacts) {
    EXPECT_EQ(name(least_upper_dtype(f.a, f.b)), name(f.want)) << name(f.a) << " + " << name(f.b);
    EXPECT_EQ(name(least_upper_dtype(f.b, f.a)), name(f.want)) << name(f.b) << " + " << name(f.a);
  }
}

TEST(IrDType, PromotionIsALattice) {
  for (const DType a : kAllTypes) {
    EXPECT_EQ(least_upper_dtype(a, a), a);
    for (const DType b : kAllTypes) {
      const DType ab = least_upper_dtype(a, b);
      EXPECT_EQ(ab, least_upper_dtype(b, a));
      EXPECT_EQ(least_upper_dtype(a, ab), ab) << name(a) << " " << name(b);  // it is above both
    }
  }
}

TEST(IrDType, NamesAndAliases) {
  for (const DType dt : kAllTypes) {
    EXPECT_EQ(dtype_by_name(name(dt)), dt);
    EXPECT_EQ(dtype_by_name(info(dt).alias), dt);
  }
  EXPECT_EQ(dtype_by_name("FLOAT"), DType::Float32);
  try {
    dtype_by_name("flota32");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Attribute);
    EXPECT_STREQ(e.what(), "[dtype] unknown dtype 'flota32'; expected a name such as float32, int64, bool");
  }
}

TEST(IrDType, LosslessCasts) {
  using enum DType;
  EXPECT_TRUE(can_lossless_cast(UInt8, Int16));
  EXPECT_TRUE(can_lossless_cast(UInt32, UInt64));
  EXPECT_TRUE(can_lossless_cast(Int16, Float32));
  EXPECT_TRUE(can_lossless_cast(UInt8, Float16));
  EXPECT_TRUE(can_lossless_cast(Int32, Float64));
  EXPECT_TRUE(can_lossless_cast(BFloat16, Float32));
  EXPECT_TRUE(can_lossless_cast(Bool, UInt64));
  EXPECT_FALSE(can_lossless_cast(Int8, UInt64));
  EXPECT_FALSE(can_lossless_cast(UInt64, Int64));
  EXPECT_FALSE(can_lossless_cast(Int32, Float32));
  EXPECT_FALSE(can_lossless_cast(Int64, Float64));
  EXPECT_FALSE(can_lossless_cast(Float16, BFloat16));
  EXPECT_FALSE(can_lossless_cast(BFloat16, Float16));
  EXPECT_FALSE(can_lossless_cast(Float32, Int64));
}

TEST(IrDType, OtherAnswers) {
  using enum DType;
  EXPECT_EQ(least_upper_float(Int32), Float32);
  EXPECT_EQ(least_upper_float(WeakInt), WeakFloat);
  EXPECT_EQ(least_upper_float(Float16), Float16);
  EXPECT_EQ(strong_dtype(WeakInt), Int32);
  EXPECT_EQ(strong_dtype(WeakFloat), Float32);
  EXPECT_EQ(weak_dtype(UInt8), WeakInt);
  EXPECT_EQ(weak_dtype(Float16), WeakFloat);
  EXPECT_EQ(weak_dtype(Bool), Bool);
  EXPECT_EQ(sum_acc_dtype(UInt8), UInt32);
  EXPECT_EQ(sum_acc_dtype(Bool), Int32);
  EXPECT_EQ(sum_acc_dtype(Int64), Int64);
  EXPECT_EQ(sum_acc_dtype(Float16), Float32);
  EXPECT_EQ(sum_acc_dtype(Float64), Float64);
  EXPECT_EQ(int_min(Int8), -128);
  EXPECT_EQ(int_max(UInt16), 65535);
  EXPECT_EQ(int_max(Bool), 1);
}

}  // namespace
