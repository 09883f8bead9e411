// What tests of tensors share.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "whit/whit.h"

namespace whit {

inline Tensor f32(std::vector<float> v, const IntList& shape) { return Tensor::from(v, shape); }
inline Tensor f64(std::vector<double> v, const IntList& shape) { return Tensor::from(v, shape); }
inline Tensor i32(std::vector<int32_t> v, const IntList& shape) { return Tensor::from(v, shape); }

/// fn throws an Error of `kind` whose text begins with `text`.
template <class Fn> void expect_error(ErrorKind kind, std::string_view text, Fn&& fn) {
  try {
    fn();
    ADD_FAILURE() << "no error; expected " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_EQ(std::string_view(e.what()).substr(0, text.size()), text);
  }
}

/// Shape and values; NaN equals NaN.
inline void expect_tensor(const Tensor& t, const IntList& shape, const std::vector<double>& want, double tolerance = 0) {
  EXPECT_EQ(t.shape().str(), Shape(std::span<const int64_t>(shape)).str());
  const std::vector<double> got = t.to_vector<double>();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    } else if (tolerance == 0 || std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i]))) << "element " << i;
    }
  }
}

/// The text of the error that fn raises, with its kind.
template <class Fn> std::string error_of(ErrorKind kind, Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  return "no error";
}

}  // namespace whit
