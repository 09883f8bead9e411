#include "io/datasets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/flags.h"
#include "base/os.h"
#include "io/archive.h"
#include "io/gzip.h"
#include "io/idx.h"
#include "io/pickle.h"

namespace whit::io {

namespace {

constexpr std::string_view kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// The file itself or its gzipped form; empty when neither is there.
std::string find_file(const std::string& folder, std::string_view name) {
  for (const char* suffix : {".gz", ""}) {
    std::string path = fmt::format("{}/{}{}", folder, name, suffix);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

bool has_all_files(const std::string& folder) {
  return std::all_of(std::begin(kFiles), std::end(kFiles), [&](std::string_view name) { return !find_file(folder, name).empty(); });
}

std::vector<std::string> places_of(const std::string& name, const std::string& folder) {
  if (!folder.empty()) return {folder};
  std::vector<std::string> places;
  if (const std::string& data = flag::DATASETS(); !data.empty()) places.push_back(fmt::format("{}/{}", data, name));
  if (name == "fashion-mnist") places.push_back("/usr/share/datasets/fashion-mnist");
  if (const std::string cache = os::cache_dir(); !cache.empty()) places.push_back(fmt::format("{}/whit/datasets/{}", cache, name));
  return places;
}

ImageSet load_images(const std::string& folder, std::string_view image_file, std::string_view label_file) {
  const std::string image_path = find_file(folder, image_file), label_path = find_file(folder, label_file);
  IdxArray images = read_idx(image_path), labels = read_idx(label_path);
  WHIT_USER(images.type == IdxType::U8 && images.shape.size() == 3, Io,
            "[mnist] {}: offset 2: holds shape [{}] of type {:#04x}; images are [n, rows, columns] of type 0x08", image_path,
            fmt::join(images.shape, ", "), static_cast<int>(images.type));
  WHIT_USER(labels.type == IdxType::U8 && labels.shape.size() == 1, Io,
            "[mnist] {}: offset 2: holds shape [{}] of type {:#04x}; labels are [n] of type 0x08", label_path, fmt::join(labels.shape, ", "),
            static_cast<int>(labels.type));
  WHIT_USER(images.shape[0] == labels.shape[0], Io, "[mnist] {}: offset 4: {} labels for {} images in {}", label_path, labels.shape[0],
            images.shape[0], image_path);
  const auto bad = std::find_if(labels.bytes.begin(), labels.bytes.end(), [](uint8_t label) { return label > 9; });
  WHIT_USER(bad == labels.bytes.end(), Io, "[mnist] {}: offset {}: label {}; labels are 0..9", label_path, 8 + (bad - labels.bytes.begin()), *bad);
  return {images.shape[0], images.shape[1], images.shape[2], 1, std::move(images.bytes), std::move(labels.bytes)};
}

// ---- CIFAR-10

constexpr int64_t kCifarBytes = 3 * 32 * 32;

struct CifarVersion {
  std::string_view folder, archive, suffix;
  bool pickled;
};
constexpr CifarVersion kCifarVersions[] = {{"cifar-10-batches-bin", "cifar-10-binary.tar.gz", ".bin", false},
                                           {"cifar-10-batches-py", "cifar-10-python.tar.gz", "", true}};

// Images of 3072 bytes behind their label.
void add_binary_batch(const std::string& path, Bytes bytes, ImageSet& set) {
  constexpr int64_t kStep = kCifarBytes + 1;
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  WHIT_USER(n_bytes > 0 && n_bytes % kStep == 0, Io, "[cifar] {}: it has {} bytes; expected images of {}", path, n_bytes, kStep);
  for (size_t i = 0; i < bytes.size(); i += kStep) {
    set.labels.push_back(bytes[i]);
    set.images.insert(set.images.end(), bytes.begin() + i + 1, bytes.begin() + i + kStep);
  }
}

// {"data": a NumPy array (n, 3072) of uint8, "labels": a list of ints, ...}.
void add_pickled_batch(const std::string& path, Bytes bytes, ImageSet& set) {
  using Kind = PickleValue::Kind;
  const auto check = [&](bool ok, const char* what) {
    WHIT_USER(ok, Io, "[cifar] {}: {}; expected a dict of data, (n, {}) of uint8, and labels", path, what, kCifarBytes);
  };
  Pickle pickle;
  const PickleValue* root = pickle.read(path, 0, bytes);
  check(root->kind == Kind::Dict, "it is no dict");
  const PickleValue *data = nullptr, *labels = nullptr;
  for (size_t i = 0; i + 1 < root->items.size(); i += 2) {
    std::string key;
    if (!pickle_bytes(*root->items[i], key)) continue;
    if (key == "data") data = root->items[i + 1];
    if (key == "labels") labels = root->items[i + 1];
  }
  check(labels && labels->kind == Kind::List && !labels->items.empty(), "it has no list of labels");
  check(data && data->kind == Kind::Call && data->text.ends_with("multiarray _reconstruct") && data->state && data->state->kind == Kind::Tuple &&
            data->state->items.size() == 5,
        "its data is no array");
  const auto& state = data->state->items;  // version, shape, dtype, is it column-major, bytes
  const auto& shape = state[1]->items;
  const auto n = static_cast<int64_t>(labels->items.size());
  check(shape.size() == 2 && shape[0]->kind == Kind::Int && shape[0]->number == n && shape[1]->kind == Kind::Int && shape[1]->number == kCifarBytes,
        "its data has another shape than its labels need");
  check(state[2]->is(Kind::Call, "numpy dtype") && !state[2]->items.empty() && state[2]->items[0]->text == "u1" && state[3]->number == 0,
        "its data is not row-major of uint8");
  std::string pixels;
  check(pickle_bytes(*state[4], pixels) && static_cast<int64_t>(pixels.size()) == n * kCifarBytes, "its data is of another length");
  set.images.insert(set.images.end(), pixels.begin(), pixels.end());
  for (const PickleValue* label : labels->items) {
    check(label->kind == Kind::Int, "a label is no int");
    set.labels.push_back(static_cast<uint8_t>(std::clamp<int64_t>(label->number, -1, 255)));
  }
}

// The content of the batch called `name`.
using ReadBatch = std::function<std::vector<uint8_t>(const std::string& name)>;

ImageSet load_batches(const std::string& place, const CifarVersion& version, const ReadBatch& read, const std::vector<std::string>& names) {
  ImageSet set{.n_rows = 32, .n_cols = 32, .n_channels = 3};
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}{}", place, name, version.suffix);
    const size_t n_before = set.labels.size();
    (version.pickled ? add_pickled_batch : add_binary_batch)(path, read(fmt::format("{}{}", name, version.suffix)), set);
    const auto bad = std::find_if(set.labels.begin() + n_before, set.labels.end(), [](uint8_t v) { return v > 9; });
    WHIT_USER(bad == set.labels.end(), Io, "[cifar] {}: image {} has the label {}; labels are 0..9", path,
              bad - set.labels.begin() - static_cast<int64_t>(n_before), *bad);
  }
  set.n_images = static_cast<int64_t>(set.labels.size());
  return set;
}

ImageData load_version(const std::string& place, const CifarVersion& version, const ReadBatch& read) {
  std::vector<std::string> train;
  for (int i = 1; i <= 5; ++i) train.push_back(fmt::format("data_batch_{}", i));
  return {load_batches(place, version, read, train), load_batches(place, version, read, {"test_batch"})};
}

}  // namespace

std::string find_mnist_folder(bool fashion, const std::string& folder) {
  const std::string name = fashion ? "fashion-mnist" : "mnist";
  const std::vector<std::string> places = places_of(name, folder);
  for (const std::string& place : places)
    if (has_all_files(place)) return place;
  raise(ErrorKind::Io, "[mnist] {} is in none of: {}; it needs {}, each also with .gz{}", name, fmt::join(places, ", "), fmt::join(kFiles, ", "),
        fashion ? " (Debian: apt install dataset-fashion-mnist)" : "");
}

ImageData load_mnist(bool fashion, const std::string& folder) {
  const std::string place = find_mnist_folder(fashion, folder);
  ImageData set{load_images(place, kFiles[0], kFiles[1]), load_images(place, kFiles[2], kFiles[3])};
  WHIT_USER(set.train.n_rows == set.test.n_rows && set.train.n_cols == set.test.n_cols, Io,
            "[mnist] {}: training images are {} x {}, test images {} x {}", place, set.train.n_rows, set.train.n_cols, set.test.n_rows,
            set.test.n_cols);
  return set;
}

std::string find_cifar_folder(const std::string& folder) {
  const std::vector<std::string> places = places_of("cifar-10", folder);
  for (const std::string& place : places)
    for (const CifarVersion& version : kCifarVersions)
      for (const std::string_view name : {version.folder, version.archive})
        if (access(fmt::format("{}/{}", place, name).c_str(), R_OK) == 0) return place;
  raise(ErrorKind::Io, fmt::format("[cifar] cifar-10 is in none of: {}; it needs {} or {}, or the folder in either", fmt::join(places, ", "),
                                   kCifarVersions[0].archive, kCifarVersions[1].archive));
}

ImageData load_cifar(const std::string& folder) {
  const std::string place = find_cifar_folder(folder);
  for (const CifarVersion& version : kCifarVersions) {
    const std::string batches = fmt::format("{}/{}", place, version.folder);
    if (access(batches.c_str(), R_OK) == 0)
      return load_version(batches, version, [&](const std::string& name) {
        const InputFile file(fmt::format("{}/{}", batches, name));
        std::vector<uint8_t> bytes(static_cast<size_t>(file.n_bytes()));
        file.read_at(0, bytes);
        return bytes;
      });
    const std::string archive = fmt::format("{}/{}", place, version.archive);
    if (access(archive.c_str(), R_OK) != 0) continue;
    const InputFile packed(archive);
    const std::vector<uint8_t> plain = gunzip_if_packed(packed);
    WHIT_USER(!plain.empty(), Io, "[cifar] {}: it is not in gzip's format", archive);
    const InputFile tar(archive, plain);
    const std::vector<ArchiveEntry> entries = read_tar_directory(tar);
    return load_version(archive, version, [&](const std::string& name) {
      const std::string wanted = fmt::format("{}/{}", version.folder, name);
      const auto it = std::find_if(entries.begin(), entries.end(), [&](auto& e) { return e.name == wanted; });
      WHIT_USER(it != entries.end(), Io, "[cifar] {}: {} is missing", archive, wanted);
      return read_entry(tar, *it);
    });
  }
  raise(ErrorKind::Io, fmt::format("[cifar] {}: the files of CIFAR-10 are no longer there", place));
}

std::string_view mnist_class_name(bool fashion, int64_t label) {
  static constexpr std::string_view kFashion[] = {"T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Boot"};
  static constexpr std::string_view kDigits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  WHIT_USER(label >= 0 && label <= 9, Index, "[mnist] label {} is out of range; labels are 0..9", label);
  return fashion ? kFashion[label] : kDigits[label];
}

}  // namespace whit::io
