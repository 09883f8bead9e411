// gguf_load from C++. All formats and what hostile files meet are tested from Python, python/tests/test_gguf.py.
#include "whit/gguf.h"

#include "tensor_checks.h"
#include "unit/temp_folder.h"

namespace whit {
namespace {

template <class T> std::string raw(T v) { return {reinterpret_cast<const char*>(&v), sizeof(T)}; }
std::string text(const std::string& s) { return raw(uint64_t{s.size()}) + s; }

TEST(Gguf, LoadsMetadataAndTensors) {
  std::string file = "GGUF" + raw(3) + raw(uint64_t{2}) + raw(uint64_t{2});
  file += text("tokens") + raw(9) + raw(8) + raw(uint64_t{2}) + text("a") + text("bc");
  file += text("layers") + raw(4) + raw(7);
  file += text("w") + raw(2) + raw(uint64_t{3}) + raw(uint64_t{2}) + raw(0) + raw(uint64_t{0});
  file += text("q") + raw(1) + raw(uint64_t{32}) + raw(8) + raw(uint64_t{32});
  file.resize((file.size() + 31) / 32 * 32);
  for (const float v : {0, 1, 2, 3, 4, 5}) file += raw(v);
  file += std::string(8, '\0') + raw(uint16_t{0x3800});  // 0.5
  for (int i = 0; i < 32; ++i) file += static_cast<char>(i - 16);

  const TempFolder folder;
  const nn::Gguf got = nn::gguf_load(folder.write("m.gguf", file));
  ASSERT_EQ(got.metadata.size(), 2u);
  const auto& tokens = std::get<std::vector<io::GgufValue>>(got.metadata[0].second.value);
  EXPECT_EQ(std::get<std::string>(tokens[1].value), "bc");
  EXPECT_EQ(std::get<uint64_t>(got.metadata[1].second.value), 7u);
  ASSERT_EQ(got.tensors.size(), 2u);
  expect_tensor(got.tensors[0].second, {2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(got.tensors[1].first, "q");
  expect_tensor(got.tensors[1].second[Slice{0, 4}], {4}, {-8, -7.5, -7, -6.5});
}

TEST(Gguf, RefusesAnotherFormat) {
  const TempFolder folder;
  const std::string path = folder.write("m.gguf", "GGML" + std::string(60, '\0'));
  expect_error(ErrorKind::Value, "[gguf_load] " + path + ": offset 0: it does not begin with GGUF", [&] { nn::gguf_load(path); });
}

}  // namespace
}  // namespace whit
