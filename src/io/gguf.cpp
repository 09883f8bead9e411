#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "io/gguf_grids.h"
#include "ir/eval.h"

namespace whit::io {

namespace {

// ---- Blocks. `d` and the like are float16 scales; products are exact or rounded once, in float.

float half_at(const uint8_t* p) { return static_cast<float>(read_element(DType::Float16, p, 0).f); }
uint32_t word_at(const uint8_t* p) { return p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24; }
float sign(int bits, int i) { return bits >> i & 1 ? -1.0f : 1.0f; }
// Nibbles of 16 bytes: the low ones are elements 0 to 15, the high ones 16 to 31.
int nibble(const uint8_t* q, int i) { return q[i % 16] >> (i / 16 * 4) & 15; }
int bit(const uint8_t* q, int i) { return q[i / 8] >> (i % 8) & 1; }

void q4_0(const uint8_t* b, void* to) {
  for (int i = 0; i < 32; ++i) static_cast<float*>(to)[i] = half_at(b) * static_cast<float>(nibble(b + 2, i) - 8);
}
void q4_1(const uint8_t* b, void* to) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 32; ++i) static_cast<float*>(to)[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}
void q5_0(const uint8_t* b, void* to) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) static_cast<float*>(to)[i] = d * static_cast<float>(nibble(b + 6, i) + 16 * bit(b + 2, i) - 16);
}
void q5_1(const uint8_t* b, void* to) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 32; ++i) static_cast<float*>(to)[i] = d * static_cast<float>(nibble(b + 8, i) + 16 * bit(b + 4, i)) + m;
}
void q8_0(const uint8_t* b, void* to) {
  for (int i = 0; i < 32; ++i) static_cast<float*>(to)[i] = half_at(b) * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

// Q4_K and Q5_K: 8 groups of 32 with a scale and a minimum of 6 bits each, packed into 12 bytes.
void k_groups(const uint8_t* b, const uint8_t* high, const uint8_t* low, float* out) {
  const float d = half_at(b), d_min = half_at(b + 2);
  const uint8_t* s = b + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    const int least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
    for (int i = 0; i < 32; ++i) {
      const int q = (low[g / 2 * 32 + i] >> (g % 2 * 4) & 15) + (high ? (high[i] >> g & 1) * 16 : 0);
      out[g * 32 + i] = d * static_cast<float>(scale) * static_cast<float>(q) - d_min * static_cast<float>(least);
    }
  }
}
void q4_k(const uint8_t* b, void* to) { k_groups(b, nullptr, b + 16, static_cast<float*>(to)); }
void q5_k(const uint8_t* b, void* to) { k_groups(b, b + 16, b + 48, static_cast<float*>(to)); }
void q6_k(const uint8_t* b, void* to) {
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i % 128;  // a half: 64 bytes of low bits, 32 of high ones
    const int low = b[half * 64 + j % 64] >> (j / 64 * 4) & 15;
    const int high = b[128 + half * 32 + j % 32] >> (j / 32 * 2) & 3;
    const auto scale = static_cast<float>(static_cast<int8_t>(b[192 + i / 16]));
    static_cast<float*>(to)[i] = d * static_cast<float>((low | high << 4) - 32) * scale;
  }
}

// IQ: 4 or 8 values at a time are an entry of a code book, with a sign each.
constexpr float kIq2Levels[] = {8, 25, 43, 0};
constexpr float kIq3XxsLevels[] = {4, 12, 20, 28, 36, 44, 52, 62};
void iq3_xxs(const uint8_t* b, void* to) {
  const float d = half_at(b);
  for (int i = 0; i < 256; ++i) {
    const uint32_t word = word_at(b + 66 + i / 32 * 4);  // a scale, and the signs of four times eight
    const auto seven = static_cast<int>(word >> (i % 32 / 8 * 7) & 127);
    const int signs = seven | (std::popcount(static_cast<unsigned>(seven)) & 1) << 7;
    const float scale = d * (static_cast<float>(word >> 28) + 0.5f) * 0.5f;
    const int entry = kIq3xxsGrid[b[2 + i / 4]];
    static_cast<float*>(to)[i] = scale * kIq3XxsLevels[entry >> (i % 4 * 3) & 7] * sign(signs, i % 8);
  }
}
void iq3_s(const uint8_t* b, void* to) {
  const float d = half_at(b);
  for (int i = 0; i < 256; ++i) {
    const int scale = 1 + 2 * (b[106 + i / 64] >> (i / 32 % 2 * 4) & 15);
    const int entry = kIq3sGrid[b[2 + i / 4] | bit(b + 66, i / 4) << 8];
    const auto level = static_cast<float>(2 * (entry >> (i % 4 * 3) & 7) + 1);
    static_cast<float*>(to)[i] = d * static_cast<float>(scale) * level * sign(b[74 + i / 8], i % 8);
  }
}
void iq2_s(const uint8_t* b, void* to) {
  const float d = half_at(b);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * (static_cast<float>(b[74 + i / 32] >> (i / 16 % 2 * 4) & 15) + 0.5f) * 0.25f;
    const int entry = kIq2sGrid[b[2 + i / 8] | (b[66 + i / 32] >> (i / 8 % 4 * 2) & 3) << 8];
    static_cast<float*>(to)[i] = scale * kIq2Levels[entry >> (i % 8 * 2) & 3] * sign(b[34 + i / 8], i % 8);
  }
}
void iq4_xs(const uint8_t* b, void* to) {
  constexpr float kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const float d = half_at(b);
  const int high = b[2] | b[3] << 8;
  for (int i = 0; i < 256; ++i) {
    const int g = i / 32;
    const int scale = ((b[4 + g / 2] >> (g % 2 * 4) & 15) | (high >> (g * 2) & 3) << 4) - 32;
    static_cast<float*>(to)[i] = d * static_cast<float>(scale) * kLevels[nibble(b + 8 + g * 16, i % 32)];
  }
}
void mxfp4(const uint8_t* b, void* to) {
  constexpr float kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
  const float half_scale = std::ldexp(1.0f, b[0] - 128);
  for (int i = 0; i < 32; ++i) static_cast<float*>(to)[i] = kTwice[nibble(b + 1, i)] * half_scale;
}
void q1_0(const uint8_t* b, void* to) {  // float16: the scale or its negative
  for (int i = 0; i < 128; ++i) {
    static_cast<uint8_t*>(to)[2 * i] = b[0];
    static_cast<uint8_t*>(to)[2 * i + 1] = static_cast<uint8_t>(b[1] ^ (bit(b + 2, i) ? 0 : 0x80));
  }
}

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, "F32", nullptr},     {1, "F16", 1, 2, "F16", nullptr},         {2, "Q4_0", 32, 18, "F32", q4_0},
    {3, "Q4_1", 32, 20, "F32", q4_1},     {6, "Q5_0", 32, 22, "F32", q5_0},         {7, "Q5_1", 32, 24, "F32", q5_1},
    {8, "Q8_0", 32, 34, "F32", q8_0},     {12, "Q4_K", 256, 144, "F32", q4_k},      {13, "Q5_K", 256, 176, "F32", q5_k},
    {14, "Q6_K", 256, 210, "F32", q6_k},  {18, "IQ3_XXS", 256, 98, "F32", iq3_xxs}, {21, "IQ3_S", 256, 110, "F32", iq3_s},
    {22, "IQ2_S", 256, 82, "F32", iq2_s}, {23, "IQ4_XS", 256, 136, "F32", iq4_xs},  {24, "I8", 1, 1, "I8", nullptr},
    {25, "I16", 1, 2, "I16", nullptr},    {26, "I32", 1, 4, "I32", nullptr},        {27, "I64", 1, 8, "I64", nullptr},
    {28, "F64", 1, 8, "F64", nullptr},    {30, "BF16", 1, 2, "BF16", nullptr},      {39, "MXFP4", 32, 17, "F32", mxfp4},
    {41, "Q1_0", 128, 18, "F16", q1_0},
};

// ---- The head of a file.

bool is_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<uint8_t>(s[i++]);
    if (c < 0x80) continue;
    const int n_more = c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 0;
    if (n_more == 0 || i + static_cast<size_t>(n_more) > s.size()) return false;
    uint32_t v = c & (0x3F >> n_more);
    for (int k = 0; k < n_more; ++k, ++i) {
      if ((static_cast<uint8_t>(s[i]) & 0xC0) != 0x80) return false;
      v = v << 6 | (static_cast<uint8_t>(s[i]) & 0x3F);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (v < kLeast[n_more] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return false;
  }
  return true;
}

// Reads on from an offset, through a buffer.
class Reader {
 public:
  explicit Reader(const InputFile& file) : file_(file) {}

  std::string where() const { return fmt::format("[gguf_load] {}: offset {}: ", file_.path(), at_); }
  int64_t at() const { return at_; }
  int64_t n_left() const { return file_.n_bytes() - at_; }
  template <class T> T number(const char* what) {
    T v;
    take(sizeof(T), reinterpret_cast<uint8_t*>(&v), what);
    return v;
  }
  /// A count of items that need at least `n_bytes_item` each of what is left.
  int64_t count(const char* what, int64_t n_bytes_item) {
    const std::string begin = where();
    const auto n = number<uint64_t>(what);
    WHIT_USER(n <= static_cast<uint64_t>(n_left() / n_bytes_item), Io, "{}{} {} need {} bytes each; the file has {} more", begin, n, what,
              n_bytes_item, n_left());
    return static_cast<int64_t>(n);
  }
  std::string text(const char* what) {
    const std::string begin = where();
    std::string s(static_cast<size_t>(count("characters", 1)), '\0');
    take(s.size(), reinterpret_cast<uint8_t*>(s.data()), what);
    WHIT_USER(is_utf8(s), Io, "{}{} is not UTF-8", begin, what);
    return s;
  }
  GgufValue value(uint32_t type, int depth = 0) {
    constexpr int kMaxDepth = 8;
    switch (type) {
      case 0: return {uint64_t{number<uint8_t>("a value")}};
      case 1: return {int64_t{number<int8_t>("a value")}};
      case 2: return {uint64_t{number<uint16_t>("a value")}};
      case 3: return {int64_t{number<int16_t>("a value")}};
      case 4: return {uint64_t{number<uint32_t>("a value")}};
      case 5: return {int64_t{number<int32_t>("a value")}};
      case 6: return {double{number<float>("a value")}};
      case 7: return {number<uint8_t>("a value") != 0};
      case 8: return {text("a string")};
      case 9: {
        WHIT_USER(depth < kMaxDepth, Io, "{}arrays are nested over {} deep", where(), kMaxDepth);
        const auto item = number<uint32_t>("the type of an array");
        constexpr int64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
        WHIT_USER(item < std::size(kBytes), Io, "{}an array holds values of type {}; expected 0 to 12", where(), item);
        std::vector<GgufValue> items;
        for (int64_t n = count("values of an array", kBytes[item]); n > 0; --n) items.push_back(value(item, depth + 1));
        return {std::move(items)};
      }
      case 10: return {number<uint64_t>("a value")};
      case 11: return {number<int64_t>("a value")};
      case 12: return {number<double>("a value")};
      default: raise(ErrorKind::Io, fmt::format("{}a value has the type {}; expected 0 to 12", where(), type));
    }
  }

 private:
  void take(size_t n, uint8_t* out, const char* what) {
    WHIT_USER(static_cast<int64_t>(n) <= n_left(), Io, "{}the file ends inside {}", where(), what);
    if (n > kWindow) {
      file_.read_at(at_, {out, n});
    } else {
      if (at_ < begin_ || at_ + static_cast<int64_t>(n) > begin_ + static_cast<int64_t>(window_.size())) {
        window_.resize(static_cast<size_t>(std::min<int64_t>(kWindow, n_left())));
        file_.read_at(begin_ = at_, window_);
      }
      std::memcpy(out, window_.data() + (at_ - begin_), n);
    }
    at_ += static_cast<int64_t>(n);
  }

  static constexpr size_t kWindow = size_t{1} << 16;
  const InputFile& file_;
  int64_t at_ = 0, begin_ = 0;
  std::vector<uint8_t> window_;
};

const GgufValue* find(const GgufMetadata& metadata, std::string_view key) {
  for (const auto& [k, v] : metadata)
    if (k == key) return &v;
  return nullptr;
}
// An integer of any width; `otherwise` when there is none.
int64_t number_of(const std::string& path, const GgufMetadata& metadata, std::string_view key, int64_t otherwise) {
  const GgufValue* v = find(metadata, key);
  if (!v) return otherwise;
  const auto* i = std::get_if<int64_t>(&v->value);
  const auto* u = std::get_if<uint64_t>(&v->value);
  WHIT_USER((i && *i >= 0) || (u && *u <= INT32_MAX), Io, "[gguf_load] {}: {} is no count", path, key);
  return i ? *i : static_cast<int64_t>(*u);
}

GgufEntry read_entry(Reader& r, std::unordered_set<std::string>& names, size_t part) {
  GgufEntry e{.name = r.text("the name of a tensor"), .part = part};
  const std::string where = fmt::format("{}tensor '{}'", r.where(), e.name);
  WHIT_USER(names.insert(e.name).second, Io, "{} is there twice", where);
  const auto n_dims = r.number<uint32_t>("a tensor");
  WHIT_USER(n_dims <= 8, Io, "{} has {} axes; expected at most 8", where, n_dims);
  e.n_elems = 1;
  bool fits = true;
  for (uint32_t i = 0; i < n_dims; ++i) {
    const auto n = r.number<uint64_t>("a tensor");
    fits &= n <= uint64_t{INT64_MAX} >> 8 && !__builtin_mul_overflow(e.n_elems, static_cast<int64_t>(n), &e.n_elems);
    e.shape.insert(e.shape.begin(), static_cast<int64_t>(n));
  }
  e.type = &ggml_type(r.number<uint32_t>("a tensor"), where);
  WHIT_USER(fits && e.n_elems <= INT64_MAX / 8, Io, "{} has the shape [{}], of more elements than there can be", where, fmt::join(e.shape, ", "));
  WHIT_USER((e.shape.empty() ? 1 : e.shape.back()) % e.type->n_elems == 0, Io, "{} has rows of {}; blocks of {} hold {} elements", where,
            e.shape.empty() ? 1 : e.shape.back(), e.type->name, e.type->n_elems);
  e.n_bytes = e.n_elems / e.type->n_elems * e.type->n_bytes;
  const auto off = r.number<uint64_t>("a tensor");
  WHIT_USER(off <= uint64_t{INT64_MAX} / 2, Io, "{} begins at byte {} of the data", where, off);
  e.off_bytes = static_cast<int64_t>(off);
  return e;
}

}  // namespace

const GgmlType& ggml_type(int64_t id, std::string_view where) {
  for (const GgmlType& t : kTypes)
    if (t.id == id) return t;
  std::vector<std::string> known;
  for (const GgmlType& t : kTypes) known.push_back(fmt::format("{} {}", t.id, t.name));
  raise(ErrorKind::Value, fmt::format("{} has the ggml type {}; expected one of {}", where, id, fmt::join(known, ", ")));
}

int64_t ggml_n_bytes_elem(const GgmlType& type) { return !type.unpack ? type.n_bytes : type.dtype == "F16" ? 2 : 4; }

void ggml_check(const GgmlType& type, Bytes blocks, int64_t n_elems, std::string_view where) {
  const int64_t n = n_elems / type.n_elems;
  WHIT_USER(n_elems >= 0 && n_elems % type.n_elems == 0, Value, "{} has {} elements; blocks of {} hold {}", where, n_elems, type.name, type.n_elems);
  WHIT_USER(static_cast<int64_t>(blocks.size()) / type.n_bytes >= n, Value, "{} has {} bytes; {} elements of {} need {} a block of {}", where,
            blocks.size(), n_elems, type.name, type.n_bytes, type.n_elems);
}

void ggml_unpack(const GgmlType& type, Bytes blocks, int64_t n_elems, uint8_t* out) {
  const int64_t n = n_elems / type.n_elems;
  if (!type.unpack) {
    if (n) std::memcpy(out, blocks.data(), static_cast<size_t>(n * type.n_bytes));
    return;
  }
  const int64_t step = type.n_elems * ggml_n_bytes_elem(type);
  for (int64_t i = 0; i < n; ++i) type.unpack(blocks.data() + i * type.n_bytes, out + i * step);
}

GgufFile::GgufFile(std::unique_ptr<InputFile> file) {
  const std::string path = file->path();
  metadata_ = open(std::move(file));
  const int64_t n_parts = number_of(path, metadata_, "split.count", 1);
  WHIT_USER(n_parts <= 1, Value, "[gguf_load] {}: it is one of {} parts; give the path of the first", path, n_parts);
}

GgufFile::GgufFile(const std::string& path) {
  metadata_ = open(std::make_unique<InputFile>(path));
  const int64_t n_parts = number_of(path, metadata_, "split.count", 1);
  if (n_parts <= 1) return;
  const int64_t number = number_of(path, metadata_, "split.no", 0);
  WHIT_USER(number == 0, Value, "[gguf_load] {}: it is part {} of {}; expected the first", path, number + 1, n_parts);
  const std::string end = fmt::format("-00001-of-{:05}.gguf", n_parts);
  WHIT_USER(path.ends_with(end), Value, "[gguf_load] {}: it is the first of {} parts; expected a name ending in {}", path, n_parts, end);
  for (int64_t i = 2; i <= n_parts; ++i)
    open(std::make_unique<InputFile>(fmt::format("{}-{:05}-of-{:05}.gguf", path.substr(0, path.size() - end.size()), i, n_parts)));
}

GgufMetadata GgufFile::open(std::unique_ptr<InputFile> file) {
  Reader r(*file);
  char magic[4] = {};
  for (char& c : magic) c = r.number<char>("the magic number");
  WHIT_USER(std::memcmp(magic, "GGUF", 4) == 0, Value, "[gguf_load] {}: offset 0: it does not begin with GGUF", file->path());
  const auto version = r.number<uint32_t>("the version");
  WHIT_USER(version == 2 || version == 3, Value, "[gguf_load] {}: offset 4: version {}; expected 2 or 3, little-endian", file->path(), version);
  const int64_t n_tensors = r.count("tensors", 24);
  GgufMetadata metadata;
  std::unordered_set<std::string> keys, names;
  for (int64_t n = r.count("keys", 13); n > 0; --n) {
    const std::string where = r.where();
    std::string key = r.text("a key");
    WHIT_USER(keys.insert(key).second, Io, "{}the key '{}' is there twice", where, key);
    const auto type = r.number<uint32_t>("the type of a value");
    metadata.emplace_back(std::move(key), r.value(type));
  }
  const int64_t align = number_of(file->path(), metadata, "general.alignment", 32);
  WHIT_USER(align > 0, Io, "[gguf_load] {}: general.alignment is 0", file->path());
  for (const GgufEntry& e : entries_) names.insert(e.name);
  const size_t n_before = entries_.size();
  for (int64_t i = 0; i < n_tensors; ++i) entries_.push_back(read_entry(r, names, parts_.size()));

  const int64_t off_data = (r.at() + align - 1) / align * align;
  std::vector<const GgufEntry*> order;
  for (size_t i = n_before; i < entries_.size(); ++i) {
    GgufEntry& e = entries_[i];
    e.off_bytes += off_data;
    WHIT_USER(e.n_bytes <= file->n_bytes() && e.off_bytes <= file->n_bytes() - e.n_bytes, Io,
              "[gguf_load] {}: offset {}: tensor '{}' has {} bytes; the file ends at {}", file->path(), e.off_bytes, e.name, e.n_bytes,
              file->n_bytes());
    if (e.n_bytes) order.push_back(&e);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->off_bytes < b->off_bytes; });
  for (size_t i = 1; i < order.size(); ++i)
    WHIT_USER(order[i]->off_bytes >= order[i - 1]->off_bytes + order[i - 1]->n_bytes, Io, "[gguf_load] {}: offset {}: tensor '{}' overlaps '{}'",
              file->path(), order[i]->off_bytes, order[i]->name, order[i - 1]->name);
  parts_.push_back(std::move(file));
  return metadata;
}

void GgufFile::read(const GgufEntry& entry, std::span<uint8_t> out) const {
  // A piece at a time, so that packed and unpacked bytes of a large tensor do not stand beside each other.
  constexpr int64_t kBlocks = 4096;
  std::vector<uint8_t> packed;
  for (int64_t i = 0, n = entry.n_elems / entry.type->n_elems; i < n; i += kBlocks) {
    const int64_t n_here = std::min(kBlocks, n - i), step = entry.type->n_elems * ggml_n_bytes_elem(*entry.type);
    packed.resize(static_cast<size_t>(n_here * entry.type->n_bytes));
    parts_[entry.part]->read_at(entry.off_bytes + i * entry.type->n_bytes, packed);
    ggml_unpack(*entry.type, packed, n_here * entry.type->n_elems, out.data() + i * step);
  }
}

}  // namespace whit::io
