// Data sets as tensors.
#pragma once
#include <string>

#include "whit/tensor.h"

namespace whit::nn::datasets {

struct MnistOptions {
  bool fashion = false;
  std::string folder = {};  ///< where the four idx.gz files are; by default the known places are tried
  std::optional<std::string> device = {};
};
struct ImageTensors {
  Tensor x_train, y_train, x_test, y_test;  ///< uint8: images (n, channels, rows, columns), labels (n,)
};
/// Images (n, 1, 28, 28). errors: Io, with the places that were tried
ImageTensors mnist(const MnistOptions& o = {});

struct CifarOptions {
  std::string folder = {};  ///< where an archive of CIFAR-10 is; by default the known places are tried
  std::optional<std::string> device = {};
};
/// Images (n, 3, 32, 32); the binary and the pickled version serve alike. errors: as above
ImageTensors cifar(const CifarOptions& o = {});

}  // namespace whit::nn::datasets
