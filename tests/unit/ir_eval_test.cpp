// What scalar ops mean, at their corners; and rounding against a list of all values of a format.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "ir/build.h"
#include "ir/eval.h"

using namespace whit;

namespace {

constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min(), kMax64 = std::numeric_limits<int64_t>::max();
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

int64_t eval_i(Op op, DType dt, std::initializer_list<int64_t> args) {
  std::vector<Scalar> src;
  for (const int64_t a : args) src.push_back(Scalar::of(dt, a));
  return eval_scalar(op, is_comparison(op) ? DType::Bool : dt, src).i;
}
double eval_f(Op op, DType dt, std::initializer_list<double> args) {
  std::vector<Scalar> src;
  for (const double a : args) src.push_back(Scalar::of(dt, a));
  const Scalar r = eval_scalar(op, is_comparison(op) ? DType::Bool : dt, src);
  return r.as_double();
}
Scalar cast_to(DType to, const Scalar& v) { return eval_scalar(Op::Cast, to, std::span(&v, 1)); }

// ---- formats, each described again in the plainest way

struct Format {
  DType dtype;
  int exponent_bits, mantissa_bits, bias;
  int n_top;  // numbers of the top exponent that are finite
  bool is_fnuz;
  double overflow;  // what becomes of a finite value that is too large
};
const Format kFormats[] = {{DType::Float16, 5, 10, 15, 0, false, kInf}, {DType::BFloat16, 8, 7, 127, 0, false, kInf},
                           {DType::Fp8E4M3, 4, 3, 7, 7, false, 448},    {DType::Fp8E4M3FNUZ, 4, 3, 8, 8, true, 240},
                           {DType::Fp8E5M2, 5, 2, 15, 0, false, 57344}, {DType::Fp8E5M2FNUZ, 5, 2, 16, 4, true, 57344}};

// All finite values >= 0, ascending; the index of a value is its bits.
std::vector<double> all_values(const Format& f) {
  std::vector<double> out;
  const int top = (1 << f.exponent_bits) - 1;
  for (int e = 0; e <= top; ++e)
    for (int m = 0; m < (e == top ? f.n_top : 1 << f.mantissa_bits); ++m)
      out.push_back(e == 0 ? std::ldexp(m, 1 - f.bias - f.mantissa_bits) : std::ldexp((1 << f.mantissa_bits) + m, e - f.bias - f.mantissa_bits));
  return out;
}

TEST(IrEvalRounding, EveryMidpointOfTheNarrowFormats) {
  for (const Format& f : kFormats) {
    SCOPED_TRACE(name(f.dtype));
    const std::vector<double> v = all_values(f);
    for (size_t i = 0; i + 1 < v.size(); ++i) {
      const double middle = (v[i] + v[i + 1]) / 2;
      ASSERT_EQ(round_to(f.dtype, v[i]), v[i]);
      ASSERT_EQ(round_to(f.dtype, middle), i % 2 ? v[i + 1] : v[i]) << middle;
      ASSERT_EQ(round_to(f.dtype, std::nextafter(middle, 0)), v[i]);
      ASSERT_EQ(round_to(f.dtype, std::nextafter(middle, kInf)), v[i + 1]);
      ASSERT_EQ(round_to(f.dtype, -middle), i % 2 ? -v[i + 1] : -v[i]);
    }
    const double last = v.back(), step = last - v[v.size() - 2];
    EXPECT_EQ(round_to(f.dtype, std::nextafter(last + step / 2, 0)), last);
    EXPECT_EQ(round_to(f.dtype, last + step / 2), f.overflow);
    EXPECT_EQ(round_to(f.dtype, -1e300), -f.overflow);
    EXPECT_EQ(std::signbit(round_to(f.dtype, -1e-300)), !f.is_fnuz);
    EXPECT_TRUE(std::isnan(round_to(f.dtype, kNaN)));
  }
}

TEST(IrEvalRounding, BitsOfEveryValue) {
  for (const Format& f : kFormats) {
    SCOPED_TRACE(name(f.dtype));
    const std::vector<double> v = all_values(f);
    const int width = 1 + f.exponent_bits + f.mantissa_bits;
    const uint32_t sign = 1u << (width - 1);
    for (uint32_t bits = 0; bits < 2 * sign; ++bits) {
      const Scalar x = read_element(f.dtype, &bits, 0);
      const uint32_t magnitude = bits & (sign - 1);
      if (magnitude < v.size() && !(f.is_fnuz && bits == sign)) {
        ASSERT_EQ(x.f, bits & sign ? -v[magnitude] : v[magnitude]) << bits;
      } else if (!f.is_fnuz && f.n_top == 0 && magnitude == v.size()) {
        ASSERT_EQ(x.f, bits & sign ? -kInf : kInf);
      } else {
        ASSERT_TRUE(std::isnan(x.f)) << bits;
      }
      uint32_t back = 0;
      write_element(f.dtype, &back, 0, x);
      ASSERT_EQ(back, bits);  // also of each NaN
    }
  }
}

TEST(IrEvalRounding, Infinities) {
  EXPECT_EQ(round_to(DType::Float16, kInf), kInf);
  EXPECT_EQ(round_to(DType::Fp8E5M2, -kInf), -kInf);
  for (const DType dt : {DType::Fp8E4M3, DType::Fp8E4M3FNUZ, DType::Fp8E5M2FNUZ}) EXPECT_TRUE(std::isnan(round_to(dt, kInf))) << name(dt);
  const auto bits = [](DType dt, double v) {
    uint8_t b = 0;
    write_element(dt, &b, 0, Scalar::of(dt, v));
    return b;
  };
  EXPECT_EQ(bits(DType::Fp8E4M3, kInf), 0x7F);
  EXPECT_EQ(bits(DType::Fp8E4M3, -kInf), 0xFF);
  EXPECT_EQ(bits(DType::Fp8E4M3FNUZ, -kInf), 0x80);
  EXPECT_EQ(bits(DType::Fp8E5M2FNUZ, kNaN), 0x80);
}

TEST(IrEvalRounding, NeverTwice) {
  // Between float32 and double: to float16 by way of float32 this would be rounded to a tie first.
  const double v = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(round_to(DType::Float16, v), 1 + 0x1p-10);
  EXPECT_EQ(static_cast<double>(static_cast<float>(v)), 1 + 0x1p-11);
  // The integer 2^62 + 2^38 + 1 is above the middle of two float32; as a double it is the middle.
  EXPECT_EQ(Scalar::of(DType::Float32, (int64_t{1} << 62) + (int64_t{1} << 38) + 1).f, 0x1p62 + 0x1p39);
  EXPECT_EQ(Scalar::of(DType::BFloat16, (int64_t{1} << 62) + (int64_t{1} << 54) + 1).f, 0x1p62 + 0x1p55);
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const int64_t x = static_cast<int64_t>(random()) >> (random() % 64);
    ASSERT_EQ(Scalar::of(DType::Float32, x).f, static_cast<double>(static_cast<float>(x)));
    const Scalar u{DType::UInt64, {.i = x}};
    ASSERT_EQ(cast_to(DType::Float32, u).f, static_cast<double>(static_cast<float>(static_cast<uint64_t>(x))));
    ASSERT_EQ(cast_to(DType::Float64, u).f, static_cast<double>(static_cast<uint64_t>(x)));
  }
}

TEST(IrEvalRounding, BasicOpsOfFloat32AreCorrectlyRounded) {
  std::mt19937 random(2);
  for (int i = 0; i < 200'000; ++i) {
    // Any bits: subnormals, infinities and NaN too.
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const float y = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const auto same = [&](Op op, float want) {
      const double got = eval_f(op, DType::Float32, {x, y});
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == static_cast<double>(want))
          << name(op) << " " << x << " " << y << " " << got << " " << want;
    };
    same(Op::Add, x + y);
    same(Op::Sub, x - y);
    same(Op::Mul, x * y);
    same(Op::Fdiv, x / y);
    const double root = eval_f(Op::Sqrt, DType::Float32, {x});
    ASSERT_TRUE(std::isnan(root) ? std::isnan(std::sqrt(x)) : root == static_cast<double>(std::sqrt(x)));
  }
}

TEST(IrEvalRounding, MulAccRoundsOnce) {
  // x*y is the middle of two bfloat16 and z only tells on which side the sum is; in double z is lost.
  const double x = 1 + 0x1p-7, y = 1 + 0x1p-1, z = 0x1p-100;
  ASSERT_EQ(x * y, 1.5 + 0x1p-7 + 0x1p-8);
  EXPECT_EQ(eval_f(Op::MulAcc, DType::BFloat16, {x, y, z}), 1.5 + 0x1p-6);
  EXPECT_EQ(eval_f(Op::MulAcc, DType::BFloat16, {x, y, -z}), 1.5 + 0x1p-7);
  EXPECT_EQ(eval_f(Op::MulAcc, DType::Float32, {1 + 0x1p-23, 1 - 0x1p-23, -1}), -0x1p-46);
  EXPECT_EQ(eval_f(Op::MulAcc, DType::Float64, {1 + 0x1p-52, 1 - 0x1p-52, -1}), -0x1p-104);
  EXPECT_EQ(eval_i(Op::MulAcc, DType::Int8, {100, 3, 1}), static_cast<int8_t>(301 & 0xFF));
}

// ---- integers

TEST(IrEvalInt, DivisionsHaveResultsEverywhere) {
  for (const DType dt : {DType::Int8, DType::Int16, DType::Int32, DType::Int64}) {
    SCOPED_TRACE(name(dt));
    const int64_t lowest = int_min(dt);
    for (const Op op : {Op::Cdiv, Op::FloorDiv}) {
      EXPECT_EQ(eval_i(op, dt, {7, 0}), 0);
      EXPECT_EQ(eval_i(op, dt, {lowest, 0}), 0);
      EXPECT_EQ(eval_i(op, dt, {lowest, -1}), lowest);
    }
    for (const Op op : {Op::Cmod, Op::FloorMod}) {
      EXPECT_EQ(eval_i(op, dt, {7, 0}), 7);
      EXPECT_EQ(eval_i(op, dt, {-7, 0}), -7);
      EXPECT_EQ(eval_i(op, dt, {lowest, -1}), 0);
    }
  }
  EXPECT_EQ(eval_i(Op::Cdiv, DType::Int32, {-7, 2}), -3);
  EXPECT_EQ(eval_i(Op::Cmod, DType::Int32, {-7, 2}), -1);
  EXPECT_EQ(eval_i(Op::FloorDiv, DType::Int32, {-7, 2}), -4);
  EXPECT_EQ(eval_i(Op::FloorMod, DType::Int32, {-7, 2}), 1);
  EXPECT_EQ(eval_i(Op::FloorDiv, DType::Int32, {7, -2}), -4);
  EXPECT_EQ(eval_i(Op::FloorMod, DType::Int32, {7, -2}), -1);
  EXPECT_EQ(eval_i(Op::FloorDiv, DType::Int32, {-8, 2}), -4);
  EXPECT_EQ(eval_i(Op::Cdiv, DType::UInt64, {-1, 3}), static_cast<int64_t>(~uint64_t{0} / 3));
  EXPECT_EQ(eval_i(Op::FloorMod, DType::UInt64, {-1, 10}), 5);
  EXPECT_EQ(eval_i(Op::Cdiv, DType::UInt64, {5, -1}), 0);
}

TEST(IrEvalInt, ExhaustiveInt8AgainstWiderArithmetic) {
  for (int x = -128; x < 128; ++x)
    for (int y = -128; y < 128; ++y) {
      const auto wrap = [](int v) { return static_cast<int64_t>(static_cast<int8_t>(v)); };
      ASSERT_EQ(eval_i(Op::Add, DType::Int8, {x, y}), wrap(x + y));
      ASSERT_EQ(eval_i(Op::Sub, DType::Int8, {x, y}), wrap(x - y));
      ASSERT_EQ(eval_i(Op::Mul, DType::Int8, {x, y}), wrap(x * y));
      ASSERT_EQ(eval_i(Op::Max, DType::Int8, {x, y}), std::max(x, y));
      ASSERT_EQ(eval_i(Op::CmpLt, DType::Int8, {x, y}), x < y);
      if (y == 0) continue;
      ASSERT_EQ(eval_i(Op::Cdiv, DType::Int8, {x, y}), wrap(x / y));
      ASSERT_EQ(eval_i(Op::Cmod, DType::Int8, {x, y}), wrap(x % y));
      const int floored = static_cast<int>(std::floor(static_cast<double>(x) / y));
      ASSERT_EQ(eval_i(Op::FloorDiv, DType::Int8, {x, y}), wrap(floored));
      ASSERT_EQ(eval_i(Op::FloorMod, DType::Int8, {x, y}), wrap(x - y * floored));
    }
}

TEST(IrEvalInt, ShiftsPastTheWidth) {
  EXPECT_EQ(eval_i(Op::Shl, DType::Int32, {1, 31}), int_min(DType::Int32));
  EXPECT_EQ(eval_i(Op::Shl, DType::Int32, {1, 32}), 0);
  EXPECT_EQ(eval_i(Op::Shl, DType::Int32, {1, -1}), 0);
  EXPECT_EQ(eval_i(Op::Shl, DType::UInt8, {255, 1}), 254);
  EXPECT_EQ(eval_i(Op::Shr, DType::Int32, {-8, 1}), -4);
  EXPECT_EQ(eval_i(Op::Shr, DType::Int32, {-8, 32}), -1);
  EXPECT_EQ(eval_i(Op::Shr, DType::Int32, {-8, -3}), -1);
  EXPECT_EQ(eval_i(Op::Shr, DType::Int32, {8, 99}), 0);
  EXPECT_EQ(eval_i(Op::Shr, DType::UInt64, {-1, 63}), 1);
  EXPECT_EQ(eval_i(Op::Shr, DType::UInt64, {-1, 64}), 0);
  EXPECT_EQ(eval_i(Op::Shl, DType::UInt64, {3, 63}), kMin64);
}

TEST(IrEvalInt, UnsignedOrder) {
  EXPECT_EQ(eval_i(Op::CmpLt, DType::UInt64, {1, -1}), 1);
  EXPECT_EQ(eval_i(Op::Max, DType::UInt64, {1, -1}), -1);
  EXPECT_EQ(eval_i(Op::Min, DType::UInt64, {1, -1}), 1);
  EXPECT_EQ(eval_i(Op::CmpLt, DType::UInt8, {1, -1}), 1);  // -1 is held as 255
  EXPECT_EQ(eval_i(Op::Neg, DType::UInt8, {1}), 255);
}

TEST(IrEvalInt, Pow) {
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {3, 5}), 243);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int8, {2, 7}), -128);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {0, 0}), 1);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {2, -1}), 0);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {0, -1}), 0);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {1, -5}), 1);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {-1, -5}), -1);
  EXPECT_EQ(eval_i(Op::Pow, DType::Int32, {-1, -4}), 1);
  EXPECT_EQ(eval_i(Op::Pow, DType::UInt64, {3, -1}), static_cast<int64_t>(0xAAAAAAAAAAAAAAABull));  // 3^(2^64 - 1)
}

TEST(IrEvalBool, AddIsOrMulIsAnd) {
  for (const int64_t x : {0, 1})
    for (const int64_t y : {0, 1}) {
      EXPECT_EQ(eval_i(Op::Add, DType::Bool, {x, y}), x | y);
      EXPECT_EQ(eval_i(Op::Mul, DType::Bool, {x, y}), x & y);
      EXPECT_EQ(eval_i(Op::Max, DType::Bool, {x, y}), x | y);
      EXPECT_EQ(eval_i(Op::Min, DType::Bool, {x, y}), x & y);
      EXPECT_EQ(eval_i(Op::Xor, DType::Bool, {x, y}), x ^ y);
    }
}

TEST(IrEvalInt, Threefry) {
  // Known answers of the Random123 library for threefry2x32 with 20 rounds.
  const auto run = [](uint64_t counter, uint64_t key) {
    const Scalar src[] = {Scalar::of(DType::UInt64, static_cast<int64_t>(counter)), Scalar::of(DType::UInt64, static_cast<int64_t>(key))};
    return static_cast<uint64_t>(eval_scalar(Op::Threefry, DType::UInt64, src).i);
  };
  EXPECT_EQ(run(0, 0), 0x99BA4EFE6B200159u);
  EXPECT_EQ(run(~uint64_t{0}, ~uint64_t{0}), 0xBB002BE71CB996FCu);
  EXPECT_EQ(run(0x85A308D3243F6A88u, 0x0370734413198A2Eu), 0x483DF7A0C4923A9Cu);
}

// ---- floats

TEST(IrEvalFloat, NaNWins) {
  for (const Op op : {Op::Max, Op::Min}) {
    EXPECT_TRUE(std::isnan(eval_f(op, DType::Float32, {kNaN, 1})));
    EXPECT_TRUE(std::isnan(eval_f(op, DType::Float32, {1, kNaN})));
  }
  EXPECT_EQ(eval_f(Op::CmpLt, DType::Float32, {kNaN, 1}), 0);
  EXPECT_EQ(eval_f(Op::CmpEq, DType::Float32, {kNaN, kNaN}), 0);
  EXPECT_EQ(eval_f(Op::CmpNe, DType::Float32, {kNaN, kNaN}), 1);
  EXPECT_EQ(eval_f(Op::CmpEq, DType::Float32, {0.0, -0.0}), 1);
}

TEST(IrEvalFloat, ZerosInfinitiesAndMods) {
  EXPECT_EQ(eval_f(Op::Recip, DType::Float32, {-0.0}), -kInf);
  EXPECT_TRUE(std::signbit(eval_f(Op::Sqrt, DType::Float32, {-0.0})));
  EXPECT_TRUE(std::isnan(eval_f(Op::Sqrt, DType::Float32, {-1})));
  EXPECT_EQ(eval_f(Op::Log2, DType::Float32, {0}), -kInf);
  EXPECT_TRUE(std::isnan(eval_f(Op::Sin, DType::Float32, {kInf})));
  EXPECT_TRUE(std::signbit(eval_f(Op::Trunc, DType::Float32, {-0.5})));
  EXPECT_TRUE(std::signbit(eval_f(Op::Neg, DType::Float32, {0.0})));
  EXPECT_FALSE(std::signbit(eval_f(Op::Neg, DType::Fp8E4M3FNUZ, {0.0})));
  EXPECT_EQ(eval_f(Op::Cmod, DType::Float64, {-7, 3}), -1);
  EXPECT_EQ(eval_f(Op::FloorMod, DType::Float64, {-7, 3}), 2);
  EXPECT_EQ(eval_f(Op::FloorMod, DType::Float64, {7, -3}), -2);
  EXPECT_EQ(eval_f(Op::FloorMod, DType::Float64, {-1, kInf}), kInf);
  EXPECT_TRUE(std::signbit(eval_f(Op::FloorMod, DType::Float64, {6, -3})));
  EXPECT_TRUE(std::isnan(eval_f(Op::FloorMod, DType::Float64, {1, 0})));
  EXPECT_EQ(eval_f(Op::Pow, DType::Float32, {0, 0}), 1);
  EXPECT_EQ(eval_f(Op::Exp2, DType::Float32, {128}), kInf);
  EXPECT_EQ(eval_f(Op::Exp2, DType::Float32, {-149}), 0x1p-149);
  EXPECT_EQ(eval_f(Op::Mul, DType::Float16, {300, 300}), kInf);
  EXPECT_EQ(eval_f(Op::Mul, DType::Fp8E4M3, {300, 300}), 448);
}

TEST(IrEvalFloat, AnOperationsNaNIsCanonical) {
  const uint64_t usual = std::bit_cast<uint64_t>(kNaN);
  EXPECT_EQ(usual, 0x7FF8000000000000u);
  EXPECT_EQ(std::bit_cast<uint64_t>(eval_f(Op::Sub, DType::Float32, {kInf, kInf})), usual);
  EXPECT_EQ(std::bit_cast<uint64_t>(eval_f(Op::Fdiv, DType::Float64, {0, 0})), usual);
}

// ---- casts

TEST(IrEvalCast, FloatToInt) {
  const auto to = [](DType dt, double v) { return cast_to(dt, Scalar::of(DType::Float64, v)).i; };
  EXPECT_EQ(to(DType::Int32, -2.9), -2);
  EXPECT_EQ(to(DType::Int32, kNaN), 0);
  EXPECT_EQ(to(DType::Int64, 1e30), kMax64);
  EXPECT_EQ(to(DType::Int64, -kInf), kMin64);
  EXPECT_EQ(to(DType::Int64, 0x1p63), kMax64);
  EXPECT_EQ(to(DType::Int64, -0x1p63), kMin64);
  EXPECT_EQ(to(DType::Int32, 1e30), -1);  // INT64_MAX wraps to -1
  EXPECT_EQ(to(DType::Int32, 0x1p31), int_min(DType::Int32));
  EXPECT_EQ(to(DType::UInt8, 300.7), 44);
  EXPECT_EQ(to(DType::UInt8, -1.5), 255);
  EXPECT_EQ(to(DType::UInt64, -1.0), -1);
  EXPECT_EQ(to(DType::Bool, kNaN), 1);
  EXPECT_EQ(to(DType::Bool, -0.0), 0);
  EXPECT_EQ(to(DType::Bool, 1e-320), 1);
}

TEST(IrEvalCast, IntsKeepAll64Bits) {
  const Scalar big = Scalar::of(DType::Int64, kMax64 - 1);
  EXPECT_EQ(cast_to(DType::UInt64, big).i, kMax64 - 1);
  EXPECT_EQ(cast_to(DType::WeakInt, big).i, kMax64 - 1);
  EXPECT_EQ(cast_to(DType::Int16, big).i, -2);
  EXPECT_EQ(cast_to(DType::UInt64, Scalar::of(DType::Int8, int64_t{-1})).i, -1);
  EXPECT_EQ(cast_to(DType::Int64, Scalar::of(DType::UInt32, int64_t{-1})).i, 0xFFFFFFFF);
  EXPECT_EQ(cast_to(DType::Float64, Scalar::of(DType::UInt64, int64_t{-1})).f, 0x1p64);
}

TEST(IrEvalCast, BitcastKeepsEveryBit) {
  for (uint32_t bits : {0u, 1u, 0x7F800001u, 0xFFC12345u, 0x80000000u, 0x3F800000u}) {
    const Scalar x = Scalar::of(DType::UInt32, static_cast<int64_t>(bits));
    const Scalar f = eval_scalar(Op::Bitcast, DType::Float32, std::span(&x, 1));
    EXPECT_EQ(eval_scalar(Op::Bitcast, DType::UInt32, std::span(&f, 1)).i, bits);
  }
  const Scalar one = Scalar::of(DType::Float16, 1.0);
  EXPECT_EQ(eval_scalar(Op::Bitcast, DType::Int16, std::span(&one, 1)).i, 0x3C00);
}

// ---- monoids, constants

TEST(IrEvalMonoid, IdentitiesDoNothing) {
  const DType types[] = {DType::Bool,    DType::Int8,    DType::UInt8,       DType::Int64,   DType::UInt64,
                         DType::WeakInt, DType::Fp8E4M3, DType::Fp8E5M2FNUZ, DType::Float16, DType::Float32};
  for (const DType dt : types)
    for (const char* m : {"add", "mul", "max", "min"})
      for (const int64_t v : {int64_t{0}, int64_t{1}, int64_t{-3}, int_min(dt), int_max(dt)}) {
        const Scalar x = is_float(dt) ? Scalar::of(dt, static_cast<double>(v)) : Scalar::of(dt, v);
        const Scalar r = eval_scalar(monoid_op(m), dt, std::vector{monoid_identity(m, dt), x});
        EXPECT_EQ(r.as_double(), x.as_double()) << name(dt) << " " << m;
        EXPECT_EQ(eval_scalar(monoid_op(m), dt, std::vector{x, monoid_identity(m, dt)}).as_double(), x.as_double());
      }
}

TEST(IrEvalConstants, Fold) {
  const UOp a = constant(DType::Float32, 0.1), b = constant(DType::Float32, 0.2);
  const UOp both[] = {a, b};
  EXPECT_EQ(fold_constants(Op::Add, DType::Float32, both), constant(DType::Float32, static_cast<double>(0.1f + 0.2f)));
  EXPECT_EQ(fold_constants(Op::CmpLt, DType::Bool, both), const_bool(true));
  const UOp none = UOp::make(Op::Const, DType::Int32, {}, Arg::invalid()), one = constant(DType::Int32, 1);
  const UOp gone[] = {one, none};
  EXPECT_TRUE(fold_constants(Op::Add, DType::Int32, gone).arg().is_invalid());
  const UOp chosen[] = {const_bool(true), one, none}, refused[] = {const_bool(false), one, none};
  EXPECT_EQ(fold_constants(Op::Where, DType::Int32, chosen), one);
  EXPECT_TRUE(fold_constants(Op::Where, DType::Int32, refused).arg().is_invalid());
  EXPECT_EQ(scalar_of(constant(DType::UInt64, int64_t{-1})).as_double(), 0x1p64);
}

}  // namespace
