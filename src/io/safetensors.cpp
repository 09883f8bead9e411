#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "base/error.h"

namespace whit::io {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's reference implementation
constexpr int64_t kPrefixBytes = 8;
constexpr char kMetadataKey[] = "__metadata__";

struct DtypeRow {
  std::string_view name;
  int64_t n_bytes;
};
constexpr DtypeRow kDtypes[] = {{"BOOL", 1},        {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1},
                                {"F8_E5M2FNUZ", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},     {"BF16", 2},    {"I32", 4},     {"U32", 4},
                                {"F32", 4},         {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};

// Bytes that dtype and shape need; -1 when the number does not fit.
int64_t needed_n_bytes(int64_t n_bytes_elem, std::span<const int64_t> shape) {
  int64_t n_bytes = n_bytes_elem;
  for (const int64_t n : shape)
    if (n < 0 || __builtin_mul_overflow(n_bytes, n, &n_bytes)) return -1;
  return n_bytes;
}

// Parses the header. nlohmann keeps the last of two equal keys silently and copies and prints by recursion, so keys and
// depth are watched on the way.
Json parse_header(const std::string& path, const std::vector<uint8_t>& text) {
  constexpr int kMaxDepth = 4;  // the header, an entry, its shape, and one to report
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    WHIT_USER(depth < kMaxDepth, Io, "[safetensors] {}: offset {}: the header is nested over {} levels deep", path, kPrefixBytes, kMaxDepth);
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key)
      WHIT_USER(open_objects.back().insert(value.get<std::string>()).second, Io, "[safetensors] {}: offset {}: the header has the key '{}' twice",
                path, kPrefixBytes, value.get<std::string>());
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::exception& e) {
    raise(ErrorKind::Io, "[safetensors] {}: offset {}: the header is not JSON: {}", path, kPrefixBytes, e.what());
  }
}

// A non-negative integer that fits, or -1.
int64_t as_count(const Json& value) {
  if (!value.is_number_integer()) return -1;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return -1;
  return std::max<int64_t>(value.get<int64_t>(), -1);
}

bool counts_of(const Json& value, std::vector<int64_t>& out) {
  if (!value.is_array()) return false;
  for (const Json& item : value) {
    out.push_back(as_count(item));
    if (out.back() < 0) return false;
  }
  return true;
}

SafetensorsEntry parse_entry(const std::string& path, const std::string& name, const Json& value, int64_t off_data, int64_t n_bytes_data) {
  const std::string where = fmt::format("[safetensors] {}: offset {}: tensor '{}'", path, kPrefixBytes, name);
  WHIT_USER(value.is_object() && value.contains("dtype") && value["dtype"].is_string() && value.contains("shape") && value.contains("data_offsets"),
            Io, "{} has no dtype, shape and data_offsets", where);
  SafetensorsEntry entry{name, value["dtype"].get<std::string>(), {}, 0, 0};
  const int64_t n_bytes_elem = safetensors_n_bytes_of(entry.dtype);
  WHIT_USER(n_bytes_elem != 0, Io, "{} has the unknown dtype '{}'", where, entry.dtype);
  WHIT_USER(counts_of(value["shape"], entry.shape), Io, "{} has the shape {}; sizes are integers from 0 on", where, value["shape"].dump());
  std::vector<int64_t> range;
  WHIT_USER(counts_of(value["data_offsets"], range) && range.size() == 2 && range[0] <= range[1], Io,
            "{} has the data_offsets {}; they are a begin and an end", where, value["data_offsets"].dump());
  WHIT_USER(range[1] <= n_bytes_data, Io, "{} ends at byte {} of the data, which has {}", where, range[1], n_bytes_data);
  const int64_t n_needed = needed_n_bytes(n_bytes_elem, entry.shape);
  WHIT_USER(n_needed == range[1] - range[0], Io, "{} has {} bytes; {} of shape [{}] needs {}", where, range[1] - range[0], entry.dtype,
            fmt::join(entry.shape, ", "), n_needed < 0 ? "more than there can be" : std::to_string(n_needed));
  entry.off_bytes = off_data + range[0];
  entry.n_bytes = n_needed;
  return entry;
}

// The ranges must cover the data without overlap and without a hole.
void check_cover(const std::string& path, const std::vector<SafetensorsEntry>& entries, int64_t off_data, int64_t n_bytes_file) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->off_bytes, a->n_bytes) < std::pair(b->off_bytes, b->n_bytes);
  });
  int64_t end = off_data;
  for (const SafetensorsEntry* entry : order) {
    WHIT_USER(entry->off_bytes >= end, Io, "[safetensors] {}: offset {}: tensor '{}' overlaps the one before it, to {}", path, entry->off_bytes,
              entry->name, end);
    WHIT_USER(entry->off_bytes == end, Io, "[safetensors] {}: offset {}: {} bytes before tensor '{}' belong to none", path, end,
              entry->off_bytes - end, entry->name);
    end = entry->off_bytes + entry->n_bytes;
  }
  WHIT_USER(end == n_bytes_file, Io, "[safetensors] {}: offset {}: {} bytes after the last tensor", path, end, n_bytes_file - end);
}

}  // namespace

int64_t safetensors_n_bytes_of(std::string_view dtype) {
  for (const DtypeRow& row : kDtypes)
    if (row.name == dtype) return row.n_bytes;
  return 0;
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<InputFile> file) : file_(std::move(file)) {
  const int64_t n_bytes = file_->n_bytes();
  WHIT_USER(n_bytes >= kPrefixBytes, Io, "[safetensors] {}: offset {}: the file ends inside the length of its header", this->path(), n_bytes);
  uint8_t prefix[kPrefixBytes];
  file_->read_at(0, prefix);
  uint64_t n_header = 0;
  for (int i = kPrefixBytes - 1; i >= 0; --i) n_header = n_header << 8 | prefix[i];
  WHIT_USER(n_header <= static_cast<uint64_t>(std::min(kMaxHeaderBytes, n_bytes - kPrefixBytes)), Io,
            "[safetensors] {}: offset 0: the header claims {} bytes; the file has {} more, a header at most {}", this->path(), n_header,
            n_bytes - kPrefixBytes, kMaxHeaderBytes);
  std::vector<uint8_t> text(n_header);
  file_->read_at(kPrefixBytes, text);
  const Json header = parse_header(this->path(), text);
  WHIT_USER(header.is_object(), Io, "[safetensors] {}: offset {}: the header is not a JSON object", this->path(), kPrefixBytes);
  const int64_t off_data = off_data_ = kPrefixBytes + static_cast<int64_t>(n_header);
  for (const auto& [name, value] : header.items()) {
    if (name != kMetadataKey) {
      entries_.push_back(parse_entry(this->path(), name, value, off_data, n_bytes - off_data));
      continue;
    }
    WHIT_USER(value.is_object(), Io, "[safetensors] {}: offset {}: {} is not an object", this->path(), kPrefixBytes, kMetadataKey);
    for (const auto& [key, item] : value.items()) {
      WHIT_USER(item.is_string(), Io, "[safetensors] {}: offset {}: {} '{}' is not a string", this->path(), kPrefixBytes, kMetadataKey, key);
      metadata_.emplace_back(key, item.get<std::string>());
    }
  }
  check_cover(this->path(), entries_, off_data, n_bytes);
}

const SafetensorsEntry* SafetensorsFile::find_entry(std::string_view name) const {
  for (const SafetensorsEntry& entry : entries_)
    if (entry.name == name) return &entry;
  return nullptr;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::span<uint8_t> out) const {
  WHIT_USER(static_cast<int64_t>(out.size()) == entry.n_bytes, Value, "[safetensors] tensor '{}' has {} bytes, the destination {}", entry.name,
            entry.n_bytes, out.size());
  file_->read_at(entry.off_bytes, out);
}

void write_safetensors(const std::string& path, std::span<const SafetensorsInput> tensors, const Metadata& metadata) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsInput& tensor : tensors) {
    WHIT_USER(tensor.name != kMetadataKey && names.insert(tensor.name).second, Value, "[safetensors] the name '{}' is {}", tensor.name,
              tensor.name == kMetadataKey ? "reserved" : "used twice");
    const int64_t n_bytes_elem = safetensors_n_bytes_of(tensor.dtype);
    WHIT_USER(n_bytes_elem != 0, Value, "[safetensors] tensor '{}' has the dtype '{}', which the format does not have", tensor.name, tensor.dtype);
    WHIT_USER(needed_n_bytes(n_bytes_elem, tensor.shape) == static_cast<int64_t>(tensor.bytes.size()), Value,
              "[safetensors] tensor '{}' has {} bytes, which is not {} of shape [{}]", tensor.name, tensor.bytes.size(), tensor.dtype,
              fmt::join(tensor.shape, ", "));
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return safetensors_n_bytes_of(tensors[a].dtype) > safetensors_n_bytes_of(tensors[b].dtype); });
  std::vector<int64_t> offsets(tensors.size());
  std::vector<Bytes> parts(2);
  int64_t off_bytes = 0;
  for (const size_t i : order) {
    offsets[i] = off_bytes;
    off_bytes += static_cast<int64_t>(tensors[i].bytes.size());
    parts.push_back(tensors[i].bytes);
  }

  Json header = Json::object();
  if (!metadata.empty()) {
    Json& object = header[kMetadataKey];
    for (const auto& [key, value] : metadata) object[key] = value;
  }
  // A member of an ordered_json object is looked up by a linear walk; emplace_back on its vector is not.
  auto& members = header.get_ref<Json::object_t&>();
  for (size_t i = 0; i < tensors.size(); ++i) {
    Json value;
    value["dtype"] = tensors[i].dtype;
    value["shape"] = tensors[i].shape;
    value["data_offsets"] = {offsets[i], offsets[i] + static_cast<int64_t>(tensors[i].bytes.size())};
    members.Container::emplace_back(tensors[i].name, std::move(value));
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error& e) {
    raise(ErrorKind::Value, "[safetensors] a name is not UTF-8: {}", e.what());
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  WHIT_USER(static_cast<int64_t>(text.size()) <= kMaxHeaderBytes, Value, "[safetensors] the header has {} bytes, over {}", text.size(),
            kMaxHeaderBytes);
  uint8_t prefix[kPrefixBytes];
  for (int i = 0; i < kPrefixBytes; ++i) prefix[i] = static_cast<uint8_t>(text.size() >> (8 * i));
  parts[0] = prefix;
  parts[1] = as_bytes(text);
  write_file_atomically(path, parts);
}

}  // namespace whit::io
