#include "io/datasets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/flags.h"
#include "base/os.h"
#include "io/idx.h"

namespace whit::io {

namespace {

constexpr std::string_view kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                       "t10k-labels-idx1-ubyte"};

// The file itself or its gzipped form; empty when neither is there.
std::string find_file(const std::string& folder, std::string_view name) {
  for (const char* suffix : {".gz", ""}) {
    std::string path = fmt::format("{}/{}{}", folder, name, suffix);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

bool has_all_files(const std::string& folder) {
  return std::all_of(std::begin(kFiles), std::end(kFiles),
                     [&](std::string_view name) { return !find_file(folder, name).empty(); });
}

ImageSet load_images(const std::string& folder, std::string_view image_file, std::string_view label_file) {
  const std::string image_path = find_file(folder, image_file), label_path = find_file(folder, label_file);
  IdxArray images = read_idx(image_path), labels = read_idx(label_path);
  WHIT_USER(images.type == IdxType::U8 && images.shape.size() == 3, Io,
            "[mnist] {}: offset 2: holds shape [{}] of type {:#04x}; images are [n, rows, columns] of type 0x08",
            image_path, fmt::join(images.shape, ", "), static_cast<int>(images.type));
  WHIT_USER(labels.type == IdxType::U8 && labels.shape.size() == 1, Io,
            "[mnist] {}: offset 2: holds shape [{}] of type {:#04x}; labels are [n] of type 0x08", label_path,
            fmt::join(labels.shape, ", "), static_cast<int>(labels.type));
  WHIT_USER(images.shape[0] == labels.shape[0], Io, "[mnist] {}: offset 4: {} labels for {} images in {}", label_path,
            labels.shape[0], images.shape[0], image_path);
  const auto bad = std::find_if(labels.bytes.begin(), labels.bytes.end(), [](uint8_t label) { return label > 9; });
  WHIT_USER(bad == labels.bytes.end(), Io, "[mnist] {}: offset {}: label {}; labels are 0..9", label_path,
            8 + (bad - labels.bytes.begin()), *bad);
  return {images.shape[0], images.shape[1], images.shape[2], std::move(images.bytes), std::move(labels.bytes)};
}

}  // namespace

std::string find_mnist_folder(bool fashion, const std::string& folder) {
  const std::string name = fashion ? "fashion-mnist" : "mnist";
  std::vector<std::string> places;
  if (!folder.empty()) {
    places.push_back(folder);
  } else {
    if (const std::string& data = flag::DATASETS(); !data.empty()) places.push_back(fmt::format("{}/{}", data, name));
    if (fashion) places.push_back("/usr/share/datasets/fashion-mnist");
    if (const std::string cache = os::cache_dir(); !cache.empty())
      places.push_back(fmt::format("{}/whit/datasets/{}", cache, name));
  }
  for (const std::string& place : places)
    if (has_all_files(place)) return place;
  raise(ErrorKind::Io,
        fmt::format("[mnist] {} is in none of: {}; it needs {}, each also with .gz{}", name, fmt::join(places, ", "),
                    fmt::join(kFiles, ", "), fashion ? " (Debian: apt install dataset-fashion-mnist)" : ""));
}

Mnist load_mnist(bool fashion, const std::string& folder) {
  const std::string place = find_mnist_folder(fashion, folder);
  Mnist set{load_images(place, kFiles[0], kFiles[1]), load_images(place, kFiles[2], kFiles[3])};
  WHIT_USER(set.train.n_rows == set.test.n_rows && set.train.n_cols == set.test.n_cols, Io,
            "[mnist] {}: training images are {} x {}, test images {} x {}", place, set.train.n_rows, set.train.n_cols,
            set.test.n_rows, set.test.n_cols);
  return set;
}

std::string_view mnist_class_name(bool fashion, int64_t label) {
  static constexpr std::string_view kFashion[] = {"T-shirt", "Trouser", "Pullover", "Dress", "Coat",
                                                  "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Boot"};
  static constexpr std::string_view kDigits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  WHIT_USER(label >= 0 && label <= 9, Index, "[mnist] label {} is out of range; labels are 0..9", label);
  return fashion ? kFashion[label] : kDigits[label];
}

}  // namespace whit::io
