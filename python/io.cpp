// Files: safetensors and data sets.
#include "convert.h"
#include "io/datasets.h"
#include "io/safetensors.h"
#include "whit/state.h"

namespace whit::python {
namespace {

nb::object safe_load(const std::string& path) {
  nb::dict out;
  for (const auto& [name, tensor] : nn::safe_load(path)) out[name.c_str()] = nb::cast(tensor);
  return out;
}

void safe_save(nb::dict tensors, const std::string& path, nb::dict metadata) {
  nn::StateDict state;
  for (auto [k, v] : tensors) {
    WHIT_USER(nb::isinstance<nb::str>(k), Type, "[safe_save] the name {} is no text", nb::repr(k).c_str());
    state.emplace_back(nb::cast<std::string>(k), to_tensor(v, "safe_save"));
  }
  io::Metadata meta;
  for (auto [k, v] : metadata) meta.emplace_back(nb::cast<std::string>(k), nb::cast<std::string>(v));
  nn::safe_save(state, path, meta);
}

Tensor images(const io::ImageSet& s) {
  return Tensor::from_bytes(s.images.data(), DType::UInt8, {s.n_images, 1, s.n_rows, s.n_cols});
}
Tensor labels(const io::ImageSet& s) { return Tensor::from_bytes(s.labels.data(), DType::UInt8, s.n_images); }

}  // namespace

void bind_io(nb::module_& m) {
  m.def("tensor_bytes", [](const Tensor& t) {
    const std::vector<std::byte> b = unlocked([&] { return t.bytes(); });
    return nb::bytes(b.data(), b.size());
  });
  m.def("safe_load", &safe_load);
  m.def("safe_save", &safe_save);
  m.def("safe_load_metadata", [](const std::string& path) {
    const io::SafetensorsFile file(path);
    nb::dict header, meta;
    int64_t start = -1;
    for (const auto& [k, v] : file.metadata()) meta[k.c_str()] = v;
    if (!file.metadata().empty()) header["__metadata__"] = meta;
    for (const io::SafetensorsEntry& e : file.entries())
      if (start < 0 || e.off_bytes < start) start = e.off_bytes;
    for (const io::SafetensorsEntry& e : file.entries()) {
      nb::dict d;
      d["dtype"] = e.dtype;
      d["shape"] = e.shape;
      d["data_offsets"] = nb::make_tuple(e.off_bytes - start, e.off_bytes - start + e.n_bytes);
      header[e.name.c_str()] = d;
    }
    return nb::make_tuple(std::max<int64_t>(start, 0), header);
  });
  m.def("mnist", [](bool fashion, const std::string& folder) {
    const io::Mnist d = unlocked([&] { return io::load_mnist(fashion, folder); });
    return nb::make_tuple(images(d.train), labels(d.train), images(d.test), labels(d.test));
  });
}

}  // namespace whit::python
