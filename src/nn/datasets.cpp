#include "whit/datasets.h"

#include "io/datasets.h"

namespace whit::nn::datasets {

MnistTensors mnist(const MnistOptions& o) {
  const io::Mnist data = io::load_mnist(o.fashion, o.folder);
  const TensorOptions where{.device = o.device};
  auto images = [&](const io::ImageSet& s) {
    return Tensor::from_bytes(s.images.data(), DType::UInt8, {s.n_images, 1, s.n_rows, s.n_cols}, where);
  };
  auto labels = [&](const io::ImageSet& s) {
    return Tensor::from_bytes(s.labels.data(), DType::UInt8, s.n_images, where);
  };
  return {images(data.train), labels(data.train), images(data.test), labels(data.test)};
}

}  // namespace whit::nn::datasets
