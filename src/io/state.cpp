#include "whit/state.h"

#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "engine/buffers.h"
#include "io/safetensors.h"
#include "io/tensors.h"
#include "tensor/impl.h"

namespace whit::nn {
namespace {

struct NamedDType {
  const char* text;
  DType dtype;
};
constexpr NamedDType kDTypes[] = {
    {"BOOL", DType::Bool},       {"I8", DType::Int8},     {"U8", DType::UInt8},      {"I16", DType::Int16},   {"U16", DType::UInt16},
    {"I32", DType::Int32},       {"U32", DType::UInt32},  {"I64", DType::Int64},     {"U64", DType::UInt64},  {"F8_E4M3", DType::Fp8E4M3},
    {"F8_E5M2", DType::Fp8E5M2}, {"F16", DType::Float16}, {"BF16", DType::BFloat16}, {"F32", DType::Float32}, {"F64", DType::Float64},
};

bool loads_into(const Shape& from, const Shape& into) {
  return from == into || (from.numel() == 1 && into.numel() == 1 && from.size() <= 1 && into.size() <= 1);
}

}  // namespace

DType safe_dtype(const std::string& text, const char* op, const std::string& what) {
  for (const NamedDType& d : kDTypes)
    if (text == d.text) return d.dtype;
  raise(ErrorKind::Value, "[{}] {} is {}, which whit has no dtype for", op, what, text);
}

namespace {
// `exact` wants the same shape and dtype, where otherwise () and (1,) are alike and dtypes are converted.
void load(const char* op, const StateDict& into, const StateDict& from, bool strict, bool exact) {
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, t] : from) by_name[name] = &t;
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const auto& [name, target] : into) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      WHIT_USER(!strict, Key, "[{}] there is no tensor '{}'", op, name);
      continue;
    }
    const Tensor& source = *it->second;
    WHIT_USER(exact ? source.shape() == target.shape() : loads_into(source.shape(), target.shape()), Value, "[{}] '{}' has shape {}, the model {}",
              op, name, source.shape(), target.shape());
    WHIT_USER(!exact || source.dtype() == target.dtype(), Value, "[{}] '{}' is {}, that of the model {}", op, name, source.dtype(), target.dtype());
    pairs.emplace_back(target, source);
  }
  std::vector<Tensor> all;
  for (auto& [target, source] : pairs) {
    Tensor value = source.reshape(target.shape()).cast(target.dtype());
    if (const auto dev = target.device()) value = value.to(dev);
    all.push_back(target.assign(value));
  }
  Tensor::realize_all(all);
}
}  // namespace

void load_state(const StateDict& into, const StateDict& from, bool strict) { load("load_state_dict", into, from, strict, false); }

void safe_save(const StateDict& tensors, const std::string& path, const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<Tensor> all;
  for (const auto& [name, t] : tensors) {
    WHIT_USER(!is_weak(t.dtype()), Value, "[safe_save] '{}' is {}, which has no width", name, t.dtype());
    all.push_back(t);
  }
  Tensor::realize_all(all);
  std::vector<std::vector<std::byte>> data;
  std::vector<io::SafetensorsInput> inputs;
  for (const auto& [name, t] : tensors) {
    const char* text = nullptr;
    for (const NamedDType& d : kDTypes)
      if (d.dtype == t.dtype()) text = d.text;
    WHIT_USER(text, Value, "[safe_save] '{}' is {}, which safetensors has no name for", name, t.dtype());
    data.push_back(t.bytes());
    inputs.push_back({.name = name,
                      .dtype = text,
                      .shape = std::vector<int64_t>(t.shape().begin(), t.shape().end()),
                      .bytes = {reinterpret_cast<const uint8_t*>(data.back().data()), data.back().size()}});
  }
  io::write_safetensors(path, inputs, metadata);
}

StateDict safe_load(const std::string& path, const TensorOptions& o) {
  const io::SafetensorsFile file(path);
  const std::string device = "DISK:" + std::filesystem::absolute(path).lexically_normal().string();
  const Tensor all = Tensor::empty(file.n_bytes(), {.device = device, .dtype = DType::UInt8});
  engine::buffer_of(engine::buffer_below(all.uop()))->handle();  // the file as it is now, whatever takes its name
  StateDict out;
  for (const io::SafetensorsEntry& e : file.entries()) {
    const DType dt = safe_dtype(e.dtype, "safe_load", fmt::format("{}: '{}'", path, e.name));
    const Tensor t = all[Slice{e.off_bytes, e.off_bytes + e.n_bytes}].bitcast(dt).reshape(e.shape);
    out.emplace_back(e.name, t.to(o.device.value_or(device)).cast(o.dtype.value_or(dt)));
  }
  return out;
}
StateDict safe_load(const io::SafetensorsFile& file, const TensorOptions& o) {
  StateDict out;
  for (const io::SafetensorsEntry& e : file.entries()) {
    const DType dt = safe_dtype(e.dtype, "safe_load", fmt::format("{}: '{}'", file.path(), e.name));
    out.emplace_back(e.name, detail::from_host(dt, e.shape, o, [&](auto to) { file.read(e, to); }));
  }
  return out;
}

namespace {
constexpr char kRandom[] = "random.";

// Tensors with memory, each once.
StateDict stored(const StateDict& parts) {
  StateDict out;
  std::set<const void*> seen;
  for (const auto& [name, t] : parts)
    if (t.device() && seen.insert(t.id()).second) out.emplace_back(name, t);
  return out;
}
}  // namespace

void save_checkpoint(const StateDict& parts, const std::string& path, const Metadata& metadata) {
  StateDict all = stored(parts);
  for (const auto& [name, t] : Tensor::random_state()) all.emplace_back(kRandom + name, t);
  safe_save(all, path, metadata);
}

Metadata load_checkpoint(const StateDict& parts, const std::string& path) {
  const io::SafetensorsFile file(path);
  StateDict values, random;
  for (auto& [name, t] : safe_load(file)) {
    const bool is_random = name.starts_with(kRandom);
    (is_random ? random : values).emplace_back(is_random ? name.substr(sizeof(kRandom) - 1) : name, t);
  }
  const StateDict targets = stored(parts);
  WHIT_USER(values.size() == targets.size(), Key, "[load_checkpoint] {}: it has {} tensors, the run {}", path, values.size(), targets.size());
  load("load_checkpoint", targets, values, true, true);
  Tensor::set_random_state(random);
  return file.metadata();
}

}  // namespace whit::nn
