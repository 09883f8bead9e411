#include "base/flags.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/subprocess.h"

namespace whit {
namespace {

std::string error_of(const std::string& name, const FlagValue& value) {
  try {
    set_flag(name, value);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Flags, AScopeOverridesAndRestores) {
  const int64_t before = flag::NOOPT();
  {
    const FlagScope outer("NOOPT", before + 1);
    EXPECT_EQ(flag::NOOPT(), before + 1);
    {
      const FlagScope inner({{"NOOPT", before + 2}, {"DEFAULT_FLOAT", std::string("bfloat16")}});
      EXPECT_EQ(flag::NOOPT(), before + 2);
      EXPECT_EQ(flag::DEFAULT_FLOAT(), "bfloat16");
    }
    EXPECT_EQ(flag::NOOPT(), before + 1);
  }
  EXPECT_EQ(flag::NOOPT(), before);
  EXPECT_EQ(flag::DEFAULT_FLOAT(), "float32");
}

TEST(Flags, ErrorsNameTheFlag) {
  EXPECT_EQ(error_of("DEBGU", int64_t{1}), "[flags] unknown flag 'DEBGU'; did you mean DEBUG?");
  EXPECT_EQ(error_of("QQQQQQQQ", int64_t{1}), "[flags] unknown flag 'QQQQQQQQ'");
  EXPECT_EQ(error_of("DEBUG", std::string("loud")), "[flags] DEBUG takes an integer, got 'loud'");
  EXPECT_EQ(error_of("DEV", int64_t{3}), "[flags] DEV takes a text, got the integer 3");
}

TEST(Flags, AScopeThatFailsChangesNothing) {
  const int64_t before = flag::NOOPT();
  EXPECT_THROW(FlagScope({{"NOOPT", before + 1}, {"NO_SUCH_FLAG", int64_t{1}}}), Error);
  EXPECT_EQ(flag::NOOPT(), before);
}

TEST(Flags, CodegenFlagsAreInTheKeyAndOthersAreNot) {
  const std::string key = codegen_flags();
  {
    const FlagScope scope("NOOPT", flag::NOOPT() + 1);
    EXPECT_NE(codegen_flags(), key);
  }
  {
    const FlagScope scope("DEBUG", flag::DEBUG() + 1);
    EXPECT_EQ(codegen_flags(), key);
  }
  EXPECT_EQ(codegen_flags(), key);
}

TEST(Flags, AFlagWithoutItsPartSaysSo) {
  {
    const FlagScope locals("NOLOCALS", int64_t{1});
  }
  EXPECT_NE(said_so_far().find("the flag NOLOCALS has no effect yet"), std::string::npos);
  {
    const FlagScope debug("SCACHE", int64_t{0});
  }
  EXPECT_EQ(said_so_far().find("SCACHE"), std::string::npos);
}

TEST(Flags, EveryRowHasADocAndCanBeRead) {
  for (const FlagInfo& info : flag_infos()) {
    EXPECT_FALSE(std::string(info.doc).empty()) << info.name;
    EXPECT_EQ(info.is_text, std::holds_alternative<std::string>(flag_value(info.name))) << info.name;
  }
}

TEST(Flags, TheEnvironmentOfANameIsReadOnce) {
  setenv("WHIT_TEST_NAME", "first", 1);
  ASSERT_NE(getenv_once("WHIT_TEST_NAME"), nullptr);
  setenv("WHIT_TEST_NAME", "second", 1);
  EXPECT_EQ(*getenv_once("WHIT_TEST_NAME"), "first");
  EXPECT_EQ(getenv_once("WHIT_TEST_OTHER_NAME"), nullptr);
}

TEST(Flags, ThreadsMayReadWhileOneWrites) {
  std::thread reader([] {
    for (int i = 0; i < 1000; ++i) {
      const std::string& seen = flag::SUM_DTYPE();
      EXPECT_TRUE(seen == "float32" || seen == "float64") << seen;
    }
  });
  for (int i = 0; i < 1000; ++i) const FlagScope scope("SUM_DTYPE", std::string("float64"));
  reader.join();
}

}  // namespace
}  // namespace whit
