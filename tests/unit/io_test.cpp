#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <sys/resource.h>
#include <zlib.h>

#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/flags.h"
#include "io/datasets.h"
#include "io/file.h"
#include "io/idx.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "unit/temp_folder.h"

namespace whit::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The text of the error that `run` throws, which must be of the kind given.
template <class F> std::string error_of(const F& run, ErrorKind kind = ErrorKind::Io) {
  try {
    run();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::string gzip(std::string_view bytes) {
  z_stream zip{};
  EXPECT_EQ(deflateInit2(&zip, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&zip, bytes.size()) + 32, '\0');
  zip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  zip.avail_in = static_cast<uInt>(bytes.size());
  zip.next_out = reinterpret_cast<Bytef*>(out.data());
  zip.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&zip, Z_FINISH), Z_STREAM_END);
  out.resize(zip.total_out);
  deflateEnd(&zip);
  return out;
}

std::string big_endian(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
}

std::string idx(uint8_t type, const std::vector<uint32_t>& shape, std::string_view data) {
  std::string out{'\0', '\0', static_cast<char>(type), static_cast<char>(shape.size())};
  for (const uint32_t n : shape) out += big_endian(n);
  return out + std::string(data);
}

// Runs `run` in a process that may allocate only a little more than it has, so that a claimed size would not fit.
template <class F> void expect_refused_with_little_memory(const F& run) {
  EXPECT_EXIT(
      {
        rlimit limit{};
        getrlimit(RLIMIT_AS, &limit);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, rlim_t{1} << 30);
        setrlimit(RLIMIT_AS, &limit);
#endif
        try {
          run();
        } catch (const Error& e) {
          std::fprintf(stderr, "%s\n", e.what());
          std::_Exit(e.kind() == ErrorKind::Io ? 7 : 8);
        } catch (const std::bad_alloc&) {
          std::_Exit(9);
        }
        std::_Exit(0);
      },
      testing::ExitedWithCode(7), "");
}

// --- files

TEST(IoFile, ReadsRangesAndRefusesWhatIsNotThere) {
  TempFolder folder;
  InputFile file(folder.write("a", "0123456789"));
  uint8_t out[3];
  file.read_at(4, out);
  EXPECT_EQ(std::string_view(reinterpret_cast<char*>(out), 3), "456");
  EXPECT_EQ(error_of([&] { file.read_at(8, out); }), "[read] " + folder.path("a") + ": offset 8: 3 bytes are wanted, the file has 10");
  EXPECT_THAT(error_of([&] { file.read_at(-1, out); }), HasSubstr("offset -1"));
}

TEST(IoFile, NamesTheFileThatCannotBeOpened) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { InputFile file(folder.path("none")); }), "[read] " + folder.path("none") + ": No such file or directory");
  EXPECT_EQ(error_of([&] { InputFile file(folder.path()); }), "[read] " + folder.path() + ": is not a regular file");
}

TEST(IoFile, AFileThatShrinksIsAnErrorAndNoSignal) {
  TempFolder folder;
  const std::string path = folder.write("a", std::string(1000, 'x'));
  InputFile file(path);
  std::filesystem::resize_file(path, 10);
  std::vector<uint8_t> out(1000);
  EXPECT_THAT(error_of([&] { file.read_at(0, out); }), HasSubstr("offset 10: the file has become shorter"));
}

TEST(IoFile, WritingReplacesAndLeavesNothingBehind) {
  TempFolder folder;
  write_file_atomically(folder.path("a"), as_bytes("one"));
  const Bytes parts[] = {as_bytes("two"), {}, as_bytes("three")};
  write_file_atomically(folder.path("a"), parts);
  EXPECT_EQ(folder.read("a"), "twothree");
  EXPECT_EQ(folder.n_files(), 1);
}

TEST(IoFile, AFailedWriteKeepsTheOldFile) {
  TempFolder folder;
  folder.write("a", "old");
  EXPECT_THAT(error_of([&] { write_file_atomically(folder.path("no-folder/a"), as_bytes("new")); }),
              HasSubstr("cannot be created: No such file or directory"));
  std::filesystem::create_directory(folder.path("d"));
  EXPECT_THAT(error_of([&] { write_file_atomically(folder.path("d"), as_bytes("new")); }), HasSubstr("is not a regular file"));
  EXPECT_EQ(folder.read("a"), "old");
  EXPECT_EQ(folder.n_files(), 2);
}

TEST(IoFile, AFullDiskIsReportedAndTheOldFileStays) {
  TempFolder folder;
  folder.write("a", "old");
  EXPECT_EXIT(
      {
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = 100;  // the kernel refuses bytes past 100 as a full disk would
        setrlimit(RLIMIT_FSIZE, &limit);
        signal(SIGXFSZ, SIG_IGN);
        const std::string text = error_of([&] { write_file_atomically(folder.path("a"), as_bytes(std::string(1000, 'x'))); });
        const bool good = text.find("offset 100: File too large") != std::string::npos && folder.read("a") == "old" && folder.n_files() == 1;
        std::_Exit(good ? 7 : 8);
      },
      testing::ExitedWithCode(7), "");
}

// --- idx

TEST(IoIdx, ReadsPlainAndGzippedFilesOfEveryType) {
  TempFolder folder;
  const std::string bytes = idx(0x08, {2, 3}, "abcdef");
  for (const std::string& path : {folder.write("a", bytes), folder.write("a.gz", gzip(bytes))}) {
    const IdxArray array = read_idx(path);
    EXPECT_EQ(array.type, IdxType::U8);
    EXPECT_THAT(array.shape, ElementsAre(2, 3));
    EXPECT_THAT(array.bytes, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  }
  const IdxArray ints = read_idx(folder.write("b", idx(0x0C, {1}, big_endian(0x01020304))));
  int32_t value = 0;
  std::memcpy(&value, ints.bytes.data(), 4);
  EXPECT_EQ(value, 0x01020304);
  EXPECT_EQ(read_idx(folder.write("c", idx(0x0E, {1, 0, 7}, ""))).bytes.size(), 0u);
  EXPECT_EQ(read_idx(folder.write("d", idx(0x08, {}, "x"))).bytes.size(), 1u);
}

TEST(IoIdx, ReadsDataOfManyChunks) {
  TempFolder folder;
  std::string data(1 << 20, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 3);
  const IdxArray array = read_idx(folder.write("a.gz", gzip(idx(0x08, {1024, 1024}, data))));
  EXPECT_EQ(std::memcmp(array.bytes.data(), data.data(), data.size()), 0);
}

TEST(IoIdx, EveryTruncationIsRefusedWithFileAndOffset) {
  TempFolder folder;
  const std::string plain = idx(0x0B, {3, 5}, std::string(30, 'z'));
  for (const std::string& whole : {plain, gzip(plain)})
    for (size_t n = 0; n < whole.size(); ++n) {
      const std::string path = folder.write("t", std::string_view(whole).substr(0, n));
      const std::string text = error_of([&] { read_idx(path); });
      EXPECT_THAT(text, HasSubstr(path + ": offset ")) << n;
    }
}

TEST(IoIdx, EveryFlippedByteIsReadOrRefused) {
  TempFolder folder;
  const std::string whole = gzip(idx(0x08, {4, 9}, std::string(36, 'q')));
  for (size_t i = 0; i < whole.size(); ++i)
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      try {
        EXPECT_THAT(read_idx(folder.write("f", bytes)).shape, ElementsAre(4, 9));  // a flip in the gzip header's fields
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Io) << e.what();
      }
    }
}

TEST(IoIdx, MessagesNameTheOffence) {
  TempFolder folder;
  const auto text_of = [&](std::string_view bytes) {
    const std::string path = folder.write("x", bytes), text = error_of([&] { read_idx(path); });
    const std::string prefix = "[idx] " + path + ": ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : "no prefix: " + text;
  };
  EXPECT_EQ(text_of(""), "offset 0: the file ends inside its header");
  EXPECT_EQ(text_of("PNG!"), "offset 0: starts with 50 4e, an idx file with 00 00");
  EXPECT_EQ(text_of(idx(0x07, {1}, "x")), "offset 2: unknown element type 0x07");
  EXPECT_EQ(text_of(idx(0x08, {2, 3}, "abc").substr(0, 9)), "offset 9: the file ends inside its header of 12 bytes");
  EXPECT_EQ(text_of(idx(0x08, {2, 3}, "abcd")), "offset 16: the data ends here; shape [2, 3] needs 18 bytes");
  EXPECT_EQ(text_of(idx(0x08, {2000, 3}, "abcd")), "offset 4: the header claims shape [2000, 3], more than a file of this length can hold");
  EXPECT_EQ(text_of(gzip(idx(0x08, {2, 3}, "abcd"))), "offset 16: the data ends here; shape [2, 3] needs 18 bytes");
  EXPECT_EQ(text_of(idx(0x08, {2}, "abcd")), "offset 10: more data than the header announces");
  EXPECT_EQ(text_of(gzip(idx(0x08, {2}, "ab")) + "tail"), "offset 30: 4 bytes after the end of the gzip stream");
}

TEST(IoIdx, WhatAHeaderClaimsIsNotAllocated) {
  TempFolder folder;
  const std::string huge = idx(0x0E, {0xffffffff, 0xffffffff, 0xffffffff}, "x");
  const std::string large = idx(0x08, {60000, 28, 28 * 1000}, "x");
  for (const std::string& path :
       {folder.write("a", huge), folder.write("b.gz", gzip(huge)), folder.write("c", large), folder.write("d.gz", gzip(large))})
    expect_refused_with_little_memory([&] { read_idx(path); });
  // Four gigabytes are claimed by a file that is long enough to hold them packed: memory follows the data.
  std::string noise(4 << 20, '\0');
  uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  const std::string path = folder.write("e.gz", gzip(idx(0x08, {1 << 16, 1 << 16}, noise)));
  expect_refused_with_little_memory([&] { read_idx(path); });
}

// --- data sets

void write_mnist(const TempFolder& folder, uint32_t n_train = 3, uint32_t n_test = 2, char label = 9) {
  folder.write("train-images-idx3-ubyte.gz", gzip(idx(0x08, {n_train, 2, 2}, std::string(4 * n_train, 'i'))));
  folder.write("train-labels-idx1-ubyte.gz", gzip(idx(0x08, {n_train}, std::string(n_train, label))));
  folder.write("t10k-images-idx3-ubyte", idx(0x08, {n_test, 2, 2}, std::string(4 * n_test, 'j')));
  folder.write("t10k-labels-idx1-ubyte", idx(0x08, {n_test}, std::string(n_test, 0)));
}

TEST(IoMnist, ReadsAGivenFolder) {
  TempFolder folder;
  write_mnist(folder);
  const ImageData set = load_mnist(false, folder.path());
  EXPECT_EQ(set.train.n_images, 3);
  EXPECT_EQ(set.test.n_images, 2);
  EXPECT_EQ(set.test.n_rows * set.test.n_cols, 4);
  EXPECT_THAT(set.train.labels, ElementsAre(9, 9, 9));
}

TEST(IoMnist, ChecksWhatItReads) {
  TempFolder folder;
  write_mnist(folder, 3, 2, 10);
  EXPECT_EQ(error_of([&] { load_mnist(false, folder.path()); }),
            "[mnist] " + folder.path("train-labels-idx1-ubyte.gz") + ": offset 8: label 10; labels are 0..9");
  write_mnist(folder);
  folder.write("t10k-labels-idx1-ubyte", idx(0x08, {3}, std::string(3, 0)));
  EXPECT_THAT(error_of([&] { load_mnist(false, folder.path()); }), HasSubstr("offset 4: 3 labels for 2 images in"));
  folder.write("t10k-labels-idx1-ubyte", idx(0x0D, {2}, std::string(8, 0)));
  EXPECT_THAT(error_of([&] { load_mnist(false, folder.path()); }), HasSubstr("holds shape [2] of type 0x0d"));
  folder.write("t10k-images-idx3-ubyte", idx(0x08, {2, 4}, std::string(8, 0)));
  EXPECT_THAT(error_of([&] { load_mnist(false, folder.path()); }), HasSubstr("holds shape [2, 4] of type 0x08"));
}

TEST(IoCifar, ReadsItsFolder) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { load_cifar(folder.path()); }), HasSubstr("is in none of: " + folder.path() + "; it needs"));
  std::filesystem::create_directory(folder.path("cifar-10-batches-bin"));
  for (const char* name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"})
    folder.write(fmt::format("cifar-10-batches-bin/{}.bin", name), "\7" + std::string(3072, name[std::strlen(name) - 1]));
  const ImageData set = load_cifar(folder.path());
  EXPECT_EQ(set.train.n_images, 5);
  EXPECT_EQ(set.train.images[3072], '2');
  EXPECT_EQ(set.test.n_channels, 3);
  EXPECT_EQ(set.test.labels, std::vector<uint8_t>{7});
  folder.write("cifar-10-batches-bin/test_batch.bin", "\12" + std::string(3072, 0));
  EXPECT_THAT(error_of([&] { load_cifar(folder.path()); }), HasSubstr("image 0 has the label 10; labels are 0..9"));
}

TEST(IoMnist, LooksFirstWhereTheFlagSays) {
  TempFolder folder;
  std::filesystem::create_directory(folder.path("mnist"));
  const FlagScope scope("DATASETS", folder.path());
  EXPECT_THAT(error_of([] { find_mnist_folder(false); }), HasSubstr("is in none of: " + folder.path("mnist") + ", "));
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"})
    folder.write(std::string("mnist/") + name, "");
  EXPECT_EQ(find_mnist_folder(false), folder.path("mnist"));
}

TEST(IoMnist, NamesThePlacesItLookedAt) {
  TempFolder folder;
  const std::string text = error_of([&] { find_mnist_folder(true, folder.path()); });
  EXPECT_THAT(text, HasSubstr("[mnist] fashion-mnist is in none of: " + folder.path() + "; it needs train-images"));
  EXPECT_THAT(text, HasSubstr("apt install dataset-fashion-mnist"));
}

TEST(IoMnist, ReadsTheRealFashionMnist) {
  const ImageData set = load_mnist(true);  // setup.sh installs it
  EXPECT_EQ(set.train.n_images, 60000);
  EXPECT_EQ(set.test.n_images, 10000);
  EXPECT_EQ(set.train.n_rows, 28);
  int64_t counts[10] = {};
  for (const uint8_t label : set.train.labels) ++counts[label];
  for (const int64_t n : counts) EXPECT_EQ(n, 6000);
  EXPECT_EQ(crc32(0, set.test.images.data(), static_cast<uInt>(set.test.images.size())), 309494841u);
}

// --- safetensors

std::string safetensors(std::string_view header, std::string_view data) {
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i) out[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  return out + std::string(header) + std::string(data);
}

TEST(IoSafetensors, WrittenFilesReadBack) {
  TempFolder folder;
  const std::string path = folder.path("m.safetensors");
  const std::string small = "abc", large = "0123456789abcdef";
  const SafetensorsInput inputs[] = {{"bias", "U8", {3}, as_bytes(small)},
                                     {"layer.weight", "F32", {2, 2}, as_bytes(large)},
                                     {"scalar", "I64", {}, as_bytes(std::string_view(large).substr(0, 8))},
                                     {"empty", "BF16", {0, 5}, {}}};
  write_safetensors(path, inputs, {{"format", "pt"}, {"note", "\"quoted\" \xc3\xa9"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"note", "\"quoted\" \xc3\xa9"}}));
  ASSERT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.entries()[0].name, "bias");
  for (const SafetensorsInput& input : inputs) {
    const SafetensorsEntry* entry = file.find_entry(input.name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->dtype, input.dtype);
    EXPECT_EQ(entry->shape, input.shape);
    EXPECT_EQ(entry->off_bytes % safetensors_n_bytes_of(input.dtype), 0);
    std::vector<uint8_t> bytes(static_cast<size_t>(entry->n_bytes));
    file.read(*entry, bytes);
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), std::string(input.bytes.begin(), input.bytes.end()));
  }
  EXPECT_EQ(file.find_entry("none"), nullptr);
  uint8_t two[2];
  EXPECT_EQ(error_of([&] { file.read(*file.find_entry("bias"), two); }, ErrorKind::Value),
            "[safetensors] tensor 'bias' has 3 bytes, the destination 2");
  write_safetensors(path, {}, {});
  EXPECT_TRUE(SafetensorsFile(path).entries().empty());
}

TEST(IoSafetensors, ManyTensorsTakeLinearTime) {
  TempFolder folder;
  std::vector<SafetensorsInput> inputs;
  for (int i = 0; i < 20000; ++i) inputs.push_back({"t" + std::to_string(i), "U8", {1}, as_bytes("x")});
  write_safetensors(folder.path("m"), inputs);
  EXPECT_EQ(SafetensorsFile(folder.path("m")).entries().size(), 20000u);
}

TEST(IoSafetensors, RefusesToWriteWhatDoesNotFitTogether) {
  TempFolder folder;
  const auto text_of = [&](std::vector<SafetensorsInput> inputs) {
    return error_of([&] { write_safetensors(folder.path("m"), inputs); }, ErrorKind::Value);
  };
  EXPECT_EQ(text_of({{"a", "F32", {2}, as_bytes("abcd")}}), "[safetensors] tensor 'a' has 4 bytes, which is not F32 of shape [2]");
  EXPECT_EQ(text_of({{"a", "F31", {1}, as_bytes("abcd")}}), "[safetensors] tensor 'a' has the dtype 'F31', which the format does not have");
  EXPECT_EQ(text_of({{"a", "U8", {1}, as_bytes("a")}, {"a", "U8", {1}, as_bytes("b")}}), "[safetensors] the name 'a' is used twice");
  EXPECT_EQ(text_of({{"__metadata__", "U8", {1}, as_bytes("a")}}), "[safetensors] the name '__metadata__' is reserved");
  EXPECT_THAT(text_of({{"\xff", "U8", {1}, as_bytes("a")}}), HasSubstr("a name is not UTF-8"));
  EXPECT_EQ(folder.n_files(), 0);
}

TEST(IoSafetensors, MessagesNameTheOffence) {
  TempFolder folder;
  const auto text_of = [&](std::string_view bytes) {
    const std::string path = folder.write("x", bytes);
    const std::string text = error_of([&] { SafetensorsFile file(path); });
    const std::string prefix = "[safetensors] " + path + ": ";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : "no prefix: " + text;
  };
  EXPECT_EQ(text_of("1234567"), "offset 7: the file ends inside the length of its header");
  EXPECT_EQ(text_of(std::string("\xff\0\0\0\0\0\0\0{}", 10)),
            "offset 0: the header claims 255 bytes; the file has 2 more, a header at most 100000000");
  EXPECT_EQ(text_of(std::string(8, '\xff') + "{}"),
            "offset 0: the header claims 18446744073709551615 bytes; the file has 2 more, a header at most 100000000");
  EXPECT_THAT(text_of(safetensors("{\"a\":", "")), HasSubstr("offset 8: the header is not JSON"));
  EXPECT_THAT(text_of(safetensors("", "")), HasSubstr("offset 8: the header is not JSON"));
  EXPECT_THAT(text_of(safetensors("{\"a\xff\":1}", "")), HasSubstr("offset 8: the header is not JSON"));
  EXPECT_EQ(text_of(safetensors("[]", "")), "offset 8: the header is not a JSON object");
  EXPECT_EQ(text_of(safetensors(std::string(100000, '['), "")), "offset 8: the header is nested over 4 levels deep");
  EXPECT_EQ(text_of(safetensors(R"({"a":1})", "")), "offset 8: tensor 'a' has no dtype, shape and data_offsets");
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view range) {
    return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, range);
  };
  EXPECT_EQ(text_of(safetensors(entry("F33", "[1]", "[0,4]"), "abcd")), "offset 8: tensor 'a' has the unknown dtype 'F33'");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[-1]", "[0,4]"), "abcd")), "offset 8: tensor 'a' has the shape [-1]; sizes are integers from 0 on");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[1.0]", "[0,4]"), "abcd")), "offset 8: tensor 'a' has the shape [1.0]; sizes are integers from 0 on");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[18446744073709551615]", "[0,4]"), "abcd")),
            "offset 8: tensor 'a' has the shape [18446744073709551615]; sizes are integers from 0 on");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[1]", "[4,0]"), "abcd")),
            "offset 8: tensor 'a' has the data_offsets [4,0]; they are a begin and an end");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[1]", "[0]"), "abcd")), "offset 8: tensor 'a' has the data_offsets [0]; they are a begin and an end");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[2]", "[0,8]"), "abcd")), "offset 8: tensor 'a' ends at byte 8 of the data, which has 4");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[2]", "[0,4]"), "abcd")), "offset 8: tensor 'a' has 4 bytes; F32 of shape [2] needs 8");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[4294967296,4294967296]", "[0,4]"), "abcd")),
            "offset 8: tensor 'a' has 4 bytes; F32 of shape [4294967296, 4294967296] needs more than there can be");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[1]", "[0,4]"), "abcdef")), "offset 66: 2 bytes after the last tensor");
  EXPECT_EQ(text_of(safetensors(entry("F32", "[1]", "[2,6]"), "abcdef")), "offset 62: 2 bytes before tensor 'a' belong to none");
  const auto two = [](std::string_view key, std::string_view range) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},"{}":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})", key,
                       range);
  };
  EXPECT_THAT(text_of(safetensors(two("b", "[2,6]"), "abcdef")), HasSubstr("tensor 'b' overlaps the one before it"));
  EXPECT_EQ(text_of(safetensors(two("a", "[4,8]"), "abcdefgh")), "offset 8: the header has the key 'a' twice");
  EXPECT_EQ(text_of(safetensors(R"({"__metadata__":{"a":1}})", "")), "offset 8: __metadata__ 'a' is not a string");
  EXPECT_EQ(text_of(safetensors(R"({"__metadata__":"a"})", "")), "offset 8: __metadata__ is not an object");
}

TEST(IoSafetensors, EveryTruncationIsRefused) {
  TempFolder folder;
  const std::string data = "0123456789ab";
  const SafetensorsInput inputs[] = {{"a", "F32", {3}, as_bytes(data)}, {"b", "U8", {2}, as_bytes("xy")}};
  write_safetensors(folder.path("m"), inputs);
  const std::string whole = folder.read("m");
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string path = folder.write("t", std::string_view(whole).substr(0, n));
    EXPECT_THAT(error_of([&] { SafetensorsFile file(path); }), HasSubstr(path + ": offset ")) << n;
  }
}

TEST(IoSafetensors, EveryFlippedHeaderByteIsReadOrRefused) {
  TempFolder folder;
  const SafetensorsInput inputs[] = {{"a", "F32", {1}, as_bytes("abcd")}, {"b", "U8", {2}, as_bytes("xy")}};
  write_safetensors(folder.path("m"), inputs, {{"k", "v"}});
  const std::string whole = folder.read("m");
  for (size_t i = 0; i < whole.size() - 6; ++i)
    for (const uint8_t flip : {0x01, 0x10, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      try {
        const SafetensorsFile file(folder.write("f", bytes));
        for (const SafetensorsEntry& entry : file.entries()) EXPECT_LE(entry.off_bytes + entry.n_bytes, static_cast<int64_t>(bytes.size()));
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::Io) << e.what();
      }
    }
}

TEST(IoSafetensors, WhatAHeaderClaimsIsNotAllocated) {
  TempFolder folder;
  std::string long_header(8, '\0');
  long_header[4] = 1;  // 4 GiB
  const std::string a = folder.write("a", long_header + "{}");
  const std::string b = folder.write("b", safetensors(R"({"a":{"dtype":"F32","shape":[1073741824,4],"data_offsets":[0,17179869184]}})", "x"));
  for (const std::string& path : {a, b}) expect_refused_with_little_memory([&] { SafetensorsFile file(path); });
}

// --- pictures

TEST(IoPng, ReadsBackAsDrawn) {
  TempFolder folder;
  const std::vector<uint8_t> pixels = {0, 100, 200, 255};
  const GridImage images[] = {{pixels.data(), "Boot", {0, 255, 0}}, {pixels.data(), "7 (8?)", {255, 0, 0}}, {pixels.data(), "", {}}};
  const Picture picture = make_grid(images, 2, 2, 2, 10);
  write_png(folder.path("p.png"), picture);

  png_image info{};
  info.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_file(&info, folder.path("p.png").c_str()), 0) << info.message;
  info.format = PNG_FORMAT_RGB;
  ASSERT_EQ(info.width, picture.width);
  ASSERT_EQ(info.height, picture.height);
  std::vector<uint8_t> rgb(PNG_IMAGE_SIZE(info));
  ASSERT_NE(png_image_finish_read(&info, nullptr, rgb.data(), 0, nullptr), 0) << info.message;
  EXPECT_EQ(rgb, picture.rgb);
}

TEST(IoPng, TextIsDrawnInsideOnly) {
  Picture picture(8, 9, {});
  picture.draw_text(1, 1, "I", {255, 255, 255});
  std::string rows;
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x) rows += picture.rgb[static_cast<size_t>(3 * (y * 8 + x))] != 0 ? '#' : '.';
    rows += '\n';
  }
  EXPECT_EQ(rows, "........\n..###...\n...#....\n...#....\n...#....\n...#....\n...#....\n..###...\n........\n");
  picture.draw_text(-3, -3, "outside \x80", {}, 3);
  EXPECT_EQ(error_of([] { Picture(0, 5, {}); }, ErrorKind::Value).substr(0, 24), "[picture] 0 x 5 pixels; ");
}

}  // namespace
}  // namespace whit::io
