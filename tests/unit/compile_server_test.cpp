#include "runtime/compile_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "base/error.h"
#include "base/os.h"
#include "unit/temp_folder.h"

namespace whit {
namespace {

std::string error_of(Compiler& compiler) {
  try {
    compiler.compile("k", "source");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Compile);
    return e.what();
  }
  return "nothing was thrown";
}

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

// A child that answers "ok" after it has read a request. The request of these tests has 9 + 1, 9 + 1 and 9 + 6 bytes.
const char* const kReadRequest = "head -c 35 >/dev/null; ";
const char* const kAnswer = "printf 'B\\002\\000\\000\\000\\000\\000\\000\\000ok'; ";

TEST(CompileServer, AnswersAreBinariesOrErrors) {
  const std::string serve = std::string(kReadRequest) + kAnswer;
  ServedCompiler good("key", shell(serve + serve + "sleep 60"), "a");
  EXPECT_EQ(good.compile("k", "source"), "ok");
  EXPECT_EQ(good.compile("k", "source"), "ok");
  EXPECT_EQ(good.n_starts(), 1);
  ServedCompiler bad("key", shell(std::string(kReadRequest) + "printf 'E\\003\\000\\000\\000\\000\\000\\000\\000why'"), "a");
  EXPECT_EQ(error_of(bad), "why");
}

TEST(CompileServer, ACrashCostsOneErrorAndARestart) {
  const TempFolder folder;
  const std::string once = folder.path("once");
  // The first child crashes in the middle of its work, the second one works.
  const std::string script = std::string(kReadRequest) + "if [ -e " + once + " ]; then " + kAnswer + " else : >" + once + "; kill -SEGV $$; fi";
  ServedCompiler compiler("key", shell(script), "a");
  EXPECT_EQ(error_of(compiler), "[compile] kernel k: the compiler's process ended while it compiled (signal 11)");
  EXPECT_EQ(compiler.compile("k", "source"), "ok");
  EXPECT_EQ(compiler.n_starts(), 2);
}

TEST(CompileServer, AHangIsEnded) {
  ServedCompiler compiler("key", shell("exec sleep 60"), "a", 100);
  const int64_t start_ns = os::now_ns();
  EXPECT_EQ(error_of(compiler), "[compile] kernel k: the compiler's process did not answer in 100 ms (it was ended)");
  EXPECT_LT(os::now_ns() - start_ns, 5'000'000'000);
}

TEST(CompileServer, NonsenseIsRefused) {
  // Each child reads the whole request first: one that ends earlier may be noticed by the write instead of the read.
  ServedCompiler text("key", shell(std::string(kReadRequest) + "echo this is a message for people"), "a");
  EXPECT_EQ(error_of(text).find("[compile] kernel k: the compiler's process answered nonsense"), 0u);
  ServedCompiler huge("key", shell(std::string(kReadRequest) + "printf 'B\\377\\377\\377\\377\\377\\377\\377\\377'"), "a");
  EXPECT_EQ(error_of(huge).find("[compile] kernel k: the compiler's process answered nonsense"), 0u);
  ServedCompiler half("key", shell(std::string(kReadRequest) + "printf 'B\\002\\000\\000\\000\\000\\000\\000\\000o'"), "a");
  EXPECT_EQ(error_of(half), "[compile] kernel k: the compiler's process ended while it answered (exit code 0)");
  ServedCompiler gone("key", shell("exit 3"), "a");
  EXPECT_NE(error_of(gone).find("(exit code 3)"), std::string::npos);
  ServedCompiler missing("key", {"/no/such/program"}, "a");
  EXPECT_THROW(missing.compile("k", "source"), Error);
}

class ReverseCompiler : public Compiler {
 public:
  ReverseCompiler() : Compiler("reverse") {}
  std::string compile(const std::string& kernel, const std::string& source) override {
    WHIT_USER(source != "bad", Compile, "[compile] kernel {} is bad", kernel);
    return std::string(source.rbegin(), source.rend());
  }
};

TEST(CompileServer, ServesRequests) {
  int to_server[2], from_server[2];
  ASSERT_EQ(pipe(to_server), 0);
  ASSERT_EQ(pipe(from_server), 0);
  std::thread server([&] {
    serve_compiles(to_server[0], from_server[1], [](const std::string& arch) -> std::shared_ptr<Compiler> {
      WHIT_USER(arch == "any", Device, "no compiler for {}", arch);
      return std::make_shared<ReverseCompiler>();
    });
    close(from_server[1]);
  });
  const auto frame = [](char kind, const std::string& body) {
    return std::string(1, kind) + static_cast<char>(body.size()) + std::string(7, '\0') + body;
  };
  const auto ask = [&](const std::string& arch, const std::string& source) {
    const std::string request = frame('A', arch) + frame('K', "k") + frame('S', source);
    EXPECT_EQ(write(to_server[1], request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char answer[200];
    const ssize_t n = read(from_server[0], answer, sizeof(answer));
    return n < 9 ? "" : std::string(1, answer[0]) + std::string(answer + 9, static_cast<size_t>(n) - 9);
  };
  EXPECT_EQ(ask("any", "abc"), "Bcba");
  EXPECT_EQ(ask("any", "bad"), "E[compile] kernel k is bad");
  EXPECT_EQ(ask("none", "abc"), "Eno compiler for none");
  close(to_server[1]);
  server.join();
  for (const int fd : {to_server[0], from_server[0]}) close(fd);
}

}  // namespace
}  // namespace whit
