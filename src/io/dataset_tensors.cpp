#include "io/datasets.h"
#include "whit/datasets.h"

namespace whit::nn::datasets {
namespace {
ImageTensors tensors(const io::ImageData& data, const std::optional<std::string>& device) {
  const auto load = [&](const std::vector<uint8_t>& bytes, const IntList& shape) {
    return Tensor::from_bytes(bytes.data(), DType::UInt8, shape, {.device = device});
  };
  const auto images = [&](const io::ImageSet& s) { return load(s.images, {s.n_images, s.n_channels, s.n_rows, s.n_cols}); };
  return {images(data.train), load(data.train.labels, data.train.n_images), images(data.test), load(data.test.labels, data.test.n_images)};
}
}  // namespace

ImageTensors mnist(const MnistOptions& o) { return tensors(io::load_mnist(o.fashion, o.folder), o.device); }
ImageTensors cifar(const CifarOptions& o) { return tensors(io::load_cifar(o.folder), o.device); }

}  // namespace whit::nn::datasets
