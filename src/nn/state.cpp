#include "whit/state.h"

#include <map>

#include "base/error.h"
#include "io/safetensors.h"
#include "nn/files.h"

namespace whit::nn {
namespace {

struct NamedDType {
  const char* text;
  DType dtype;
};
constexpr NamedDType kDTypes[] = {
    {"BOOL", DType::Bool},     {"I8", DType::Int8},         {"U8", DType::UInt8},        {"I16", DType::Int16},
    {"U16", DType::UInt16},    {"I32", DType::Int32},       {"U32", DType::UInt32},      {"I64", DType::Int64},
    {"U64", DType::UInt64},    {"F8_E4M3", DType::Fp8E4M3}, {"F8_E5M2", DType::Fp8E5M2}, {"F16", DType::Float16},
    {"BF16", DType::BFloat16}, {"F32", DType::Float32},     {"F64", DType::Float64},
};

bool loads_into(const Shape& from, const Shape& into) {
  return from == into || (from.numel() == 1 && into.numel() == 1 && from.size() <= 1 && into.size() <= 1);
}

}  // namespace

DType safe_dtype(const std::string& text, const char* op, const std::string& what) {
  for (const NamedDType& d : kDTypes)
    if (text == d.text) return d.dtype;
  raise(ErrorKind::Value, fmt::format("[{}] {} is {}, which whit has no dtype for", op, what, text));
}

void load_state(const StateDict& into, const StateDict& from, bool strict) {
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, t] : from) by_name[name] = &t;
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const auto& [name, target] : into) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      WHIT_USER(!strict, Key, "[load_state_dict] there is no tensor '{}'", name);
      continue;
    }
    const Tensor& source = *it->second;
    WHIT_USER(loads_into(source.shape(), target.shape()), Value, "[load_state_dict] '{}' has shape {}, the model {}",
              name, source.shape().str(), target.shape().str());
    pairs.emplace_back(target, source);
  }
  std::vector<Tensor> all;
  for (auto& [target, source] : pairs) {
    Tensor value = source.reshape(target.shape()).cast(target.dtype());
    if (const auto dev = target.device()) value = value.to(dev);
    target.assign(value);
    all.push_back(target);
  }
  Tensor::realize_all(all);
}

void safe_save(const StateDict& tensors, const std::string& path,
               const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<Tensor> all;
  for (const auto& [name, t] : tensors) {
    WHIT_USER(!is_weak(t.dtype()), Value, "[safe_save] '{}' is {}, which has no width", name, whit::name(t.dtype()));
    all.push_back(t);
  }
  Tensor::realize_all(all);
  std::vector<std::vector<std::byte>> data;
  std::vector<io::SafetensorsInput> inputs;
  for (const auto& [name, t] : tensors) {
    const char* text = nullptr;
    for (const NamedDType& d : kDTypes)
      if (d.dtype == t.dtype()) text = d.text;
    WHIT_USER(text, Value, "[safe_save] '{}' is {}, which safetensors has no name for", name, whit::name(t.dtype()));
    data.push_back(t.bytes());
    inputs.push_back({.name = name,
                      .dtype = text,
                      .shape = std::vector<int64_t>(t.shape().begin(), t.shape().end()),
                      .bytes = {reinterpret_cast<const uint8_t*>(data.back().data()), data.back().size()}});
  }
  io::write_safetensors(path, inputs, metadata);
}

StateDict safe_load(const std::string& path, const TensorOptions& o) { return safe_load(io::SafetensorsFile(path), o); }
StateDict safe_load(const io::SafetensorsFile& file, const TensorOptions& o) {
  StateDict out;
  for (const io::SafetensorsEntry& e : file.entries()) {
    const DType dt = safe_dtype(e.dtype, "safe_load", fmt::format("{}: '{}'", file.path(), e.name));
    std::vector<uint8_t> bytes(static_cast<size_t>(e.n_bytes));
    file.read(e, bytes);
    out.emplace_back(e.name, Tensor::from_bytes(bytes.data(), dt, e.shape, o));
  }
  return out;
}

}  // namespace whit::nn
