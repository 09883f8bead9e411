// Data sets on this machine's disk.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whit::io {

/// Labelled images of one size, a byte a pixel and channel, row-major.
struct ImageSet {
  int64_t n_images = 0, n_rows = 0, n_cols = 0, n_channels = 1;
  std::vector<uint8_t> images;  ///< [n_images, n_channels, n_rows, n_cols]
  std::vector<uint8_t> labels;  ///< [n_images], each below 10
};

struct ImageData {
  ImageSet train, test;
};

/// The folder with the four files of MNIST or Fashion-MNIST. With `folder` only that one is tried; else DATASETS/NAME (a
/// flag), the folder of Debian's package dataset-fashion-mnist, and whit/datasets/NAME in the user's cache folder, NAME
/// being `mnist` or `fashion-mnist`.
/// errors: no folder holds all four; the places that were tried are named
std::string find_mnist_folder(bool fashion, const std::string& folder = {});

/// Reads and checks the data set (60,000 and 10,000 images of 28 x 28 in the originals; other counts are accepted).
/// errors: as find_mnist_folder and read_idx; images not [n, h, w] of bytes; counts that differ; a label above 9
ImageData load_mnist(bool fashion, const std::string& folder = {});

/// The folder with an archive of CIFAR-10, or with the folder that is in it. errors: it is at no place; all are named
std::string find_cifar_folder(const std::string& folder = {});

/// CIFAR-10 (50,000 and 10,000 images of 3 x 32 x 32 in the original; other counts are accepted), in its binary or its pickled
/// version, which is read as data: `cifar-10-binary.tar.gz`, `cifar-10-python.tar.gz`, or the folder that is in either. With
/// `folder` it is looked for there only; else in DATASETS/cifar-10 and whit/datasets/cifar-10 in the user's cache folder.
/// errors: as find_cifar_folder; Io when a file is missing, damaged, not of images, or has a label above 9
ImageData load_cifar(const std::string& folder = {});

/// The class names of Fashion-MNIST ("T-shirt", "Trouser" ...) or the digits.
std::string_view mnist_class_name(bool fashion, int64_t label);

}  // namespace whit::io
