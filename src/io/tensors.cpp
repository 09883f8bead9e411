#include "io/tensors.h"

#include <map>

#include "base/error.h"
#include "io/gzip.h"
#include "tensor/impl.h"

namespace whit::nn {
std::vector<Tensor> torch_tensors(io::TorchFile& file, const std::string& path, const TensorOptions& o) {
  std::map<std::pair<size_t, DType>, Tensor> storages;
  std::vector<Tensor> out;
  for (const io::TorchTensor& t : file.tensors()) {
    const DType dt = safe_dtype(t.dtype, "torch_load", path + ": a tensor");
    const io::TorchLayout l = io::layout_of(t);
    Tensor x;
    if (l.n_elems == 0) {
      x = Tensor::zeros(l.shape, {.device = o.device, .dtype = dt});
    } else if (!l.dense) {
      x = Tensor::from_bytes(file.gather(t, l).data(), dt, l.shape, o);
    } else {
      Tensor& all = storages[{t.storage, dt}];
      if (!all.defined()) {
        const std::vector<uint8_t> bytes = file.read(file.storages()[t.storage]);
        all = Tensor::from_bytes(bytes.data(), dt, static_cast<int64_t>(bytes.size()) / t.n_bytes_elem, o);
      }
      x = all[Slice{t.off_elems, t.off_elems + l.n_elems}].reshape(l.sizes).permute(l.axes);
    }
    out.push_back(x.expand(t.shape));
  }
  return out;
}

StateDict torch_load(const std::string& path, const TensorOptions& o) {
  const io::InputFile file(path);
  io::TorchFile torch(file);
  const std::vector<Tensor> tensors = torch_tensors(torch, path, o);
  StateDict out;
  for (const auto& [name, i] : torch.named_tensors()) out.emplace_back(name, tensors[i]);
  return out;
}

namespace {
StateDict extract(const io::InputFile& file, const std::vector<io::ArchiveEntry>& entries, const TensorOptions& o) {
  StateDict out;
  for (const io::ArchiveEntry& e : entries) out.emplace_back(e.name, Tensor::from_bytes(io::read_entry(file, e).data(), DType::UInt8, e.n_bytes, o));
  return out;
}
}  // namespace

StateDict zip_extract(const io::InputFile& file, const TensorOptions& o) { return extract(file, io::read_zip_directory(file), o); }
StateDict tar_extract(const io::InputFile& file, const TensorOptions& o) {
  const std::vector<uint8_t> plain = io::gunzip_if_packed(file);
  const io::InputFile unpacked(file.path(), plain);
  const io::InputFile& tar = plain.empty() ? file : unpacked;
  return extract(tar, io::read_tar_directory(tar), o);
}
StateDict zip_extract(const std::string& path, const TensorOptions& o) { return zip_extract(io::InputFile(path), o); }
StateDict tar_extract(const std::string& path, const TensorOptions& o) { return tar_extract(io::InputFile(path), o); }

Gguf gguf_load(const io::GgufFile& file, const TensorOptions& o) {
  Gguf out{file.metadata(), {}};
  for (const io::GgufEntry& e : file.entries()) {
    const DType dt = safe_dtype(std::string(e.type->dtype), "gguf_load", e.name);
    out.tensors.emplace_back(e.name, detail::from_host(dt, e.shape, o, [&](auto to) { file.read(e, to); }));
  }
  return out;
}
Gguf gguf_load(const std::string& path, const TensorOptions& o) { return gguf_load(io::GgufFile(path), o); }

}  // namespace whit::nn
