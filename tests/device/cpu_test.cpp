// Kernels on the CPU through both compilers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "base/subprocess.h"
#include "error_of.h"
#include "runtime/buffer.h"
#include "runtime/compiler.h"
#include "runtime/device.h"
#include "runtime/program.h"
#include "unit/temp_folder.h"

namespace whit {
namespace {

// out[i] = a[i] * b[i] + v, without contraction; the C text and the IR say the same.
const char* const kC = R"(
void k(void* const* buffers, const long* variables, void* scratch, long first, long last) {
  float* out = buffers[0]; const float* a = buffers[1]; const float* b = buffers[2];
  for (long i = first; i < last; ++i) out[i] = a[i] * b[i] + (float)variables[0];
}
)";
const char* const kLlvm = R"(
define void @k(ptr noalias %buffers, ptr %variables, ptr %scratch, i64 %first, i64 %last) {
entry:
  %out = load ptr, ptr %buffers
  %pa = getelementptr ptr, ptr %buffers, i64 1
  %a = load ptr, ptr %pa
  %pb = getelementptr ptr, ptr %buffers, i64 2
  %b = load ptr, ptr %pb
  %v = load i64, ptr %variables
  %f = sitofp i64 %v to float
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %body, label %exit
body:
  %ai = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %ai
  %bi = getelementptr float, ptr %b, i64 %i
  %y = load float, ptr %bi
  %xy = fmul float %x, %y
  %r = fadd float %xy, %f
  %oi = getelementptr float, ptr %out, i64 %i
  store float %r, ptr %oi
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}
)";

std::vector<std::shared_ptr<Compiler>> compilers() {
  std::vector<std::shared_ptr<Compiler>> all;
#if WHIT_LLVM
  all.push_back(make_llvm_compiler(host_cpu_arch()));
#endif
  all.push_back(make_c_compiler(host_cpu_arch()));
  return all;
}

const char* source_for(const Compiler& compiler) { return compiler.key().starts_with("llvm") ? kLlvm : kC; }

TEST(Cpu, RunsKernelsInPartsAndWhole) {
  constexpr int64_t kN = 10'007;
  std::vector<float> a(kN), b(kN);
  for (size_t i = 0; i < kN; ++i) a[i] = 1.0f + 1e-7f * static_cast<float>(i), b[i] = 3.3f - static_cast<float>(i);
  for (const auto& compiler : compilers()) {
    for (const bool parallel : {false, true}) {
      KernelObject object;
      object.library = compiler->compile("k", source_for(*compiler));
      object.name = "k";
      object.n_buffers = 3;
      object.n_variables = 1;
      if (parallel) object.extents = {7, kN - 7};
      object.scratch_bytes = 100;
      const auto program = Device::get("CPU").load(object);
      const BufferPtr out = Buffer::make("CPU", kN * 4), in_a = Buffer::make("CPU", kN * 4), in_b = Buffer::make("CPU", kN * 4);
      in_a->copyin(a.data(), kN * 4);
      in_b->copyin(b.data(), kN * 4);
      void* buffers[] = {out->handle(), in_a->handle(), in_b->handle()};
      const int64_t variables[] = {2};
      EXPECT_GT(program->run(buffers, variables, {.global = {kN, 1, 1}}, true), 0);
      std::vector<float> result(kN);
      out->copyout(result.data(), kN * 4);
      for (size_t i = 0; i < kN; ++i) {
        const float product = a[i] * b[i];  // rounded once here, and once more with the sum
        ASSERT_EQ(result[i], product + 2.0f) << compiler->key() << " " << i;
      }
    }
  }
}

TEST(Cpu, CompileErrorsNameTheKernel) {
  for (const auto& compiler : compilers()) {
    const std::string error = error_of([&] { compiler->compile("bad_kernel", "this is no program"); });
    EXPECT_EQ(error.find("[compile] kernel bad_kernel does not compile with the renderer "), 0u) << error;
    EXPECT_NE(error.find("error:"), std::string::npos) << error;
    EXPECT_NE(error.find("\nto reproduce: "), std::string::npos) << error;
    EXPECT_NE(error.find("\nits source:\nthis is no program"), std::string::npos) << error;
  }
}

#if WHIT_LLVM
TEST(Cpu, FatalErrorsOfLlvmAreErrors) {
  const auto compiler = make_llvm_compiler(host_cpu_arch());
#ifdef __x86_64__
  const std::string foreign =
      "declare i32 @llvm.aarch64.crc32b(i32, i32)\n"
      "define void @k(ptr %p) {\n  %r = call i32 @llvm.aarch64.crc32b(i32 1, i32 2)\n"
      "  store i32 %r, ptr %p\n  ret void\n}\n";
#else
  const std::string foreign =
      "declare i32 @llvm.x86.sse42.crc32.32.8(i32, i8)\n"
      "define void @k(ptr %p) {\n  %r = call i32 @llvm.x86.sse42.crc32.32.8(i32 1, i8 2)\n"
      "  store i32 %r, ptr %p\n  ret void\n}\n";
#endif
  for (int round = 0; round < 3; ++round) {
    const std::string error = error_of([&] { compiler->compile("k", foreign); });
    EXPECT_NE(error.find("kernel k does not compile"), std::string::npos) << error;
    EXPECT_NE(error.find("Cannot select"), std::string::npos) << error;
  }
  // Wrong graphs of values are found before code generation meets them.
  const std::string error = error_of([&] {
    compiler->compile("k",
                      "define i32 @k(i32 %x) {\na:\n br label %b\nb:\n %y = add i32 %z, 1\n %z = add i32 %x, 1\n"
                      " ret i32 %y\n}");
  });
  EXPECT_NE(error.find("does not dominate"), std::string::npos) << error;
  EXPECT_FALSE(compiler->compile("k", kLlvm).empty());
}

TEST(Cpu, LlvmCompilesFromManyThreads) {
  const auto compiler = make_llvm_compiler(host_cpu_arch());
  const std::string expected = compiler->compile("k", kLlvm);
  std::vector<std::thread> threads;
  std::atomic<int> n_equal{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) {
        if (i == 1) error_of([&] { compiler->compile("bad", "no"); });
        n_equal += compiler->compile("k", kLlvm) == expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_equal.load(), 12);
}

TEST(Cpu, ArchIsChecked) {
  EXPECT_EQ(error_of([] { make_llvm_compiler("x86_64,znver99"); }), "[llvm] unknown CPU 'znver99' of x86_64-unknown-linux-gnu");
  EXPECT_EQ(error_of([] { make_llvm_compiler("x86_64,znver4,-avx512x"); }),
            "[llvm] unknown feature 'avx512x' of x86_64-unknown-linux-gnu; did you mean avx512f?");
#ifdef __x86_64__
  const auto narrow = make_llvm_compiler("x86_64,znver4,-avx512f");
  EXPECT_NE(narrow->key(), make_llvm_compiler("x86_64,znver4")->key());
  EXPECT_NE(narrow->disassemble(narrow->compile("k", kLlvm)).find("ret"), std::string::npos);
#endif
}
#endif

TEST(Compiler, TheCacheSparesCompiling) {
  const TempFolder folder;
  const FlagScope scope("CACHEDB", folder.path("cache.db"));
  for (const auto& compiler : compilers()) {
    const std::string source = source_for(*compiler);
    {
      const FlagScope assert_compile("ASSERT_COMPILE", int64_t{1});
      const std::string error = error_of([&] { compiler->compile_cached("k", source); });
      EXPECT_EQ(error.find("[compile] ASSERT_COMPILE=1, but kernel k is not in the cache of "), 0u) << error;
      EXPECT_NE(error.find(source), std::string::npos);
    }
    const std::string library = compiler->compile_cached("k", source);
    const FlagScope assert_compile("ASSERT_COMPILE", int64_t{1});
    EXPECT_EQ(compiler->compile_cached("k", source), library);
    const FlagScope other_code("NOOPT", flag::NOOPT() + 1);
    EXPECT_THROW(compiler->compile_cached("k", source), Error);
    const FlagScope no_cache("CCACHE", int64_t{0});
    EXPECT_THROW(compiler->compile_cached("k", source), Error);
  }
}

TEST(Compiler, TheToolServesCompiles) {
  const std::string tool = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../tools/whit").string();
  if (access(tool.c_str(), X_OK) != 0) GTEST_SKIP() << "the tool is not built";
  const auto local = make_c_compiler(host_cpu_arch());
  const auto served = make_served_compiler(local->key(), {tool, "compile", "C", host_cpu_arch()});
  EXPECT_EQ(served->compile("k", kC), local->compile("k", kC));
  EXPECT_NE(error_of([&] { served->compile("bad", "no"); }).find("[compile] kernel bad does not compile"), std::string::npos);
}

TEST(Compiler, AServedCompilerThatFailsCostsAnError) {
  const auto fails = [](const std::string& script, int64_t timeout_ms = 60'000) {
    return error_of([&] { make_served_compiler("key", {"/bin/sh", "-c", script}, timeout_ms)->compile("k", std::string(100'000, 's')); });
  };
  EXPECT_EQ(fails("kill -SEGV $$"), "[compile] kernel k: the compiler's process was ended by signal 11");
  EXPECT_EQ(fails("exec sleep 60", 100), "[compile] kernel k: the compiler's process did not answer in 100 ms");
  EXPECT_EQ(fails("echo why >&2; exit 3"), "[compile] kernel k: exit code 3 of the compiler's process: why\n");
  EXPECT_EQ(fails("cat >/dev/null"), "[compile] kernel k: the compiler's process gave nothing");
  EXPECT_NE(error_of([] { make_served_compiler("key", {"/no/such/program"})->compile("k", "s"); }).find("/no/such/program"), std::string::npos);
}

TEST(Compiler, CNamesWhatIsMissing) {
  const FlagScope scope("CC", std::string("no-such-compiler"));
  EXPECT_EQ(error_of([] { make_c_compiler(host_cpu_arch()); }), "[c] CC=no-such-compiler is not in PATH");
}

TEST(Compiler, GccMakesTheSameKernel) {
  if (find_program("gcc").empty()) GTEST_SKIP() << "there is no gcc";
  const FlagScope scope("CC", std::string("gcc"));
  KernelObject object;
  object.library = make_c_compiler(host_cpu_arch())->compile("k", kC);
  object.name = "k";
  float out[3], a[3] = {1, 2, 3}, b[3] = {4, 5, 6};
  void* buffers[] = {out, a, b};
  const int64_t variables[] = {7};
  Device::get("CPU").load(object)->run(buffers, variables, {.global = {3, 1, 1}}, false);
  EXPECT_EQ(out[2], 25.0f);
}

}  // namespace
}  // namespace whit
