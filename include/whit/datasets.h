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
struct MnistTensors {
  Tensor x_train, y_train, x_test, y_test;  ///< uint8: images (n, 1, 28, 28), labels (n,)
};
/// errors: Io, with the places that were tried
MnistTensors mnist(const MnistOptions& o = {});

}  // namespace whit::nn::datasets
