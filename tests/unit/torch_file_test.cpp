// torch_load, zip_extract and tar_extract from C++, and the pickle interpreter by itself. What hostile files meet is tested
// from Python, python/tests/test_state.py, where they are easily made.
#include "io/torch_file.h"

#include <zlib.h>

#include "tensor_checks.h"
#include "unit/temp_folder.h"

namespace whit {
namespace {

using Kind = io::PickleValue::Kind;
using namespace std::string_literals;

io::Bytes as_bytes(std::string_view s) { return io::as_bytes(s); }

std::string little(uint64_t v, int n) {
  std::string out;
  for (int i = 0; i < n; ++i, v >>= 8) out += static_cast<char>(v);
  return out;
}

// A zip archive of stored files.
std::string zip(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out, dir;
  for (const auto& [name, data] : files) {
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()));
    const std::string common =
        little(0, 8) + little(crc, 4) + little(data.size(), 4) + little(data.size(), 4) + little(name.size(), 2) + little(0, 2);
    dir += "PK\1\2"s + little(20, 2) + little(20, 2) + common + little(0, 10) + little(out.size(), 4) + name;
    out += "PK\3\4"s + little(20, 2) + common + name + data;
  }
  const size_t at = out.size();
  return out + dir + "PK\5\6"s + little(0, 4) + little(files.size(), 2) + little(files.size(), 2) + little(dir.size(), 4) + little(at, 4) +
         little(0, 2);
}

TEST(TorchFile, LoadsTensorsByTheirPath) {
  const std::string storage = "(S'storage'\nctorch\nIntStorage\nS'0'\nS'cpu'\nI6\ntQ";
  const auto tensor = [&](const std::string& size, const std::string& stride) {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + "I0\n(" + size + "t(" + stride + "tI00\n}tR";
  };
  const std::string pickle = "}S'a'\n]" + tensor("I2\nI3\n", "I3\nI1\n") + "aI7\nas}S'b'\n" + tensor("I3\nI2\n", "I1\nI3\n") + "s";
  std::string data;
  for (const uint64_t v : {0, 1, 2, 3, 4, 5}) data += little(v, 4);
  TempFolder folder;
  const std::string path = folder.write("w.pt", zip({{"m/data.pkl", "(" + pickle + "t."}, {"m/data/0", data}}));
  const nn::StateDict sd = nn::torch_load(path);
  ASSERT_EQ(sd.size(), 2u);
  EXPECT_EQ(sd[0].first, "0.a.0");
  EXPECT_EQ(sd[1].first, "1.b");
  expect_tensor(sd[0].second, {2, 3}, {0, 1, 2, 3, 4, 5});
  expect_tensor(sd[1].second, {3, 2}, {0, 3, 1, 4, 2, 5});
  EXPECT_EQ(nn::zip_extract(path)[1].first, "m/data/0");
  EXPECT_EQ(nn::zip_extract(path)[1].second.shape().str(), "(24,)");
}

TEST(TorchFile, RefusesWhatIsNoFileOfTorch) {
  TempFolder folder;
  const std::string path = folder.write("w.pt", "hello");
  EXPECT_EQ(error_of(ErrorKind::Io, [&] { nn::torch_load(path); }),
            "[torch_load] " + path + ": offset 0: it is neither a zip nor a tar file, nor has it the old magic number");
  const std::string evil = folder.write("e.pt", zip({{"m/data.pkl", "cos\nsystem\n(S'true'\ntR."}}));
  EXPECT_EQ(error_of(ErrorKind::Io, [&] { nn::torch_load(evil); }),
            "[pickle] " + evil +
                ":m/data.pkl: offset 21: the file wants to call os.system with 1 arguments; nothing is "
                "called but known constructors of values");
  const std::string deep = folder.write("d.pt", zip({{"m/data.pkl", "]p0\ng0\na."}}));
  EXPECT_THAT(error_of(ErrorKind::Io, [&] { nn::torch_load(deep); }), testing::HasSubstr("or holds itself"));
  const std::string climbs = folder.write("c.zip", zip({{"../x", ""}}));
  EXPECT_THAT(error_of(ErrorKind::Io, [&] { nn::zip_extract(climbs); }), testing::HasSubstr("the name '../x' would leave the archive's folder"));
}

TEST(Pickle, ReadsValuesOfEveryProtocol) {
  io::Pickle pickle;
  int64_t n_used = 0;
  const auto read = [&](std::string_view text) { return pickle.read("f", 0, as_bytes(text), &n_used); };
  EXPECT_EQ(read("I-3\n.")->number, -3);
  EXPECT_EQ(read("L12L\n.tail")->number, 12);
  EXPECT_EQ(n_used, 6);
  EXPECT_EQ(read("F1.5\n.")->real, 1.5);
  EXPECT_EQ(read("\x8a\x02\x00\xff."s)->number, -256);
  EXPECT_EQ(read("\x8a\x00."s)->number, 0);
  EXPECT_EQ(read("\x8a\x09"
                 "123456789.")
                ->kind,
            Kind::BigInt);
  EXPECT_EQ(read("G\x3f\xf8\0\0\0\0\0\0."s)->real, 1.5);
  EXPECT_EQ(read("I01\n.")->kind, Kind::Bool);
  EXPECT_EQ(read("S'a\\x41\\n\\''\n.")->text, "aA\n'");
  EXPECT_EQ(read("V\\u00e9\xe9\n.")->text, "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(read("\x80\x04\x95\x03\0\0\0\0\0\0\0K\x05."s)->number, 5);
  EXPECT_EQ(read("(I1\nI2\nl.")->items.size(), 2u);
  EXPECT_EQ(read("ccollections\nOrderedDict\n(tR.")->text, "collections OrderedDict");
  EXPECT_EQ(read("(c__main__\nThing\no}b.")->kind, Kind::Object);
}

TEST(Pickle, EveryPrefixIsRefused) {
  const std::string whole =
      "\x80\x02}(X\x01\0\0\0aK\x01X\x01\0\0\0b](K\x02\x8a\x01\x03"
      "eu."s;
  for (size_t n = 0; n < whole.size(); ++n) {
    io::Pickle pickle;
    EXPECT_THAT(error_of(ErrorKind::Io, [&] { pickle.read("f", 100, as_bytes(whole).subspan(0, n)); }), testing::HasSubstr("[pickle] f: offset 1"));
  }
}

}  // namespace
}  // namespace whit
