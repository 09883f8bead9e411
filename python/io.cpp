// Files: safetensors and data sets.
#include "convert.h"
#include "io/datasets.h"
#include "io/safetensors.h"

namespace whit::python {
namespace {

struct FormatName {
  const char* file;
  DType dtype;
};
constexpr FormatName kFormats[] = {{"BOOL", DType::Bool},       {"I8", DType::Int8},         {"U8", DType::UInt8},
                                   {"I16", DType::Int16},       {"U16", DType::UInt16},      {"I32", DType::Int32},
                                   {"U32", DType::UInt32},      {"I64", DType::Int64},       {"U64", DType::UInt64},
                                   {"F8_E4M3", DType::Fp8E4M3}, {"F8_E5M2", DType::Fp8E5M2}, {"F16", DType::Float16},
                                   {"BF16", DType::BFloat16},   {"F32", DType::Float32},     {"F64", DType::Float64}};

DType dtype_of_format(const std::string& text, const std::string& path) {
  for (const FormatName& f : kFormats)
    if (text == f.file) return f.dtype;
  raise(ErrorKind::Value, fmt::format("[safe_load] {}: whit has no dtype for {}", path, text));
}
std::string format_of_dtype(DType dt, const std::string& name_of_tensor) {
  for (const FormatName& f : kFormats)
    if (dt == f.dtype) return f.file;
  raise(ErrorKind::Value,
        fmt::format("[safe_save] tensor {} of {} has no form in safetensors", name_of_tensor, name(dt)));
}

nb::object safe_load(const std::string& path) {
  const io::SafetensorsFile file(path);
  nb::dict out;
  for (const io::SafetensorsEntry& e : file.entries()) {
    std::vector<uint8_t> bytes(static_cast<size_t>(e.n_bytes) + 1);
    file.read(e, std::span(bytes.data(), static_cast<size_t>(e.n_bytes)));
    out[e.name.c_str()] = nb::cast(Tensor::from_bytes(bytes.data(), dtype_of_format(e.dtype, path), e.shape));
  }
  return out;
}

void safe_save(nb::dict tensors, const std::string& path, nb::dict metadata) {
  std::vector<Tensor> all;
  std::vector<std::string> names;
  for (auto [k, v] : tensors) {
    WHIT_USER(nb::isinstance<nb::str>(k), Type, "[safe_save] the name {} is no text", nb::repr(k).c_str());
    names.push_back(nb::cast<std::string>(k));
    all.push_back(to_tensor(v, "safe_save"));
    format_of_dtype(all.back().dtype(), names.back());
  }
  Tensor::realize_all(all);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<io::SafetensorsInput> in;
  for (size_t i = 0; i < all.size(); ++i) bytes.push_back(all[i].bytes());
  for (size_t i = 0; i < all.size(); ++i) {
    const Shape& s = all[i].shape();
    in.push_back({names[i], format_of_dtype(all[i].dtype(), names[i]), std::vector<int64_t>(s.begin(), s.end()),
                  io::Bytes(reinterpret_cast<const uint8_t*>(bytes[i].data()), bytes[i].size())});
  }
  io::Metadata meta;
  for (auto [k, v] : metadata) meta.emplace_back(nb::cast<std::string>(k), nb::cast<std::string>(v));
  io::write_safetensors(path, in, meta);
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
