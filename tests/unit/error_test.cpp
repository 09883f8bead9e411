#include "base/error.h"

#include <gtest/gtest.h>

namespace whit {
namespace {

TEST(Error, UserErrorCarriesItsKindAndText) {
  try {
    const int axis = 3;
    WHIT_USER(axis < 2, Index, "[sum] axis {} is out of range for rank {}", axis, 2);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Index);
    EXPECT_STREQ(e.what(), "[sum] axis 3 is out of range for rank 2");
  }
}

TEST(Error, InternalErrorNamesTheConditionAndThePlace) {
  try {
    WHIT_CHECK(1 + 1 == 3, "arithmetic is {}", "broken");
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Internal);
    const std::string text = e.what();
    EXPECT_NE(text.find("arithmetic is broken"), std::string::npos) << text;
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos) << text;
    EXPECT_NE(text.find("error_test.cpp:"), std::string::npos) << text;
  }
}

TEST(Error, ArgumentsAreEvaluatedOnlyOnFailure) {
  int n_calls = 0;
  WHIT_USER(true, Value, "{}", ++n_calls);
  WHIT_CHECK(true, "{}", ++n_calls);
  EXPECT_EQ(n_calls, 0);
}

}  // namespace
}  // namespace whit
