#include "io/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace whit::io {
namespace {

using Kind = PickleValue::Kind;

struct TypeRow {
  std::string_view storage, torch, numpy, dtype;
  int64_t n_bytes;
};
constexpr TypeRow kTypes[] = {
    {"DoubleStorage", "float64", "f8", "F64", 8},
    {"FloatStorage", "float32", "f4", "F32", 4},
    {"HalfStorage", "float16", "f2", "F16", 2},
    {"BFloat16Storage", "bfloat16", "", "BF16", 2},
    {"LongStorage", "int64", "i8", "I64", 8},
    {"IntStorage", "int32", "i4", "I32", 4},
    {"ShortStorage", "int16", "i2", "I16", 2},
    {"CharStorage", "int8", "i1", "I8", 1},
    {"ByteStorage", "uint8", "u1", "U8", 1},
    {"BoolStorage", "bool", "b1", "BOOL", 1},
    {"", "uint16", "u2", "U16", 2},
    {"", "uint32", "u4", "U32", 4},
    {"", "uint64", "u8", "U64", 8},
    {"", "float8_e4m3fn", "", "F8_E4M3", 1},
    {"", "float8_e5m2", "", "F8_E5M2", 1},
};
const TypeRow* find_type(std::string_view TypeRow::* column, std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (!name.empty() && row.*column == name) return &row;
  return nullptr;
}
std::string_view last_word(std::string_view text) { return text.substr(text.rfind(' ') + 1); }

int64_t little64(const uint8_t* p) {
  uint64_t v = 0;
  for (int i = 7; i >= 0; --i) v = v << 8 | p[i];
  return static_cast<int64_t>(v);
}

bool ints_of(const PickleValue& v, std::vector<int64_t>& out) {
  const PickleValue* list = v.is(Kind::Call, "torch Size") && v.items.size() == 1 ? v.items[0] : &v;
  if (list->kind != Kind::Tuple && list->kind != Kind::List) return false;
  for (const PickleValue* item : list->items) {
    if (item->kind != Kind::Int || item->number < 0) return false;
    out.push_back(item->number);
  }
  return true;
}

}  // namespace

void TorchFile::fail(const std::string& reason) const { raise(ErrorKind::Io, "[torch_load] {}: {}", file_.path(), reason); }

TorchFile::TorchFile(const InputFile& file) : file_(file) {
  if (is_zip(file)) {
    read_zip();
  } else if (is_tar(file)) {
    read_old_tar();
  } else {
    read_legacy();
  }
  find_tensors();
}

void TorchFile::read_zip() {
  const std::vector<ArchiveEntry> entries = read_zip_directory(file_);
  if (entries.empty()) fail("offset 0: the archive is empty");
  const std::string base = entries[0].name.substr(0, entries[0].name.find('/'));
  const ArchiveEntry* pickle = nullptr;
  for (const ArchiveEntry& e : entries) {
    if (e.name == base + "/data.pkl") pickle = &e;
    if (e.name == base + "/byteorder") {
      const std::vector<uint8_t> order = read_entry(file_, e);
      if (std::string(order.begin(), order.end()) != "little") fail(fmt::format("offset {}: it is big-endian", e.off_bytes));
    }
    const std::string data = base + "/data/";
    if (!e.name.starts_with(data)) continue;
    storage_by_key_[e.name.substr(data.size())] = storages_.size();
    storages_.push_back({e.name.substr(data.size()), e.n_bytes, e, nullptr});
  }
  if (!pickle) fail(fmt::format("offset 0: the archive has no '{}/data.pkl'", base));
  root_ = pickle_.read(file_.path() + ":" + pickle->name, 0, read_entry(file_, *pickle));
}

// Pickles one after the other: a magic number, a version, the machine, the object, the keys of its storages; then for each
// key the number of elements and the elements.
void TorchFile::read_legacy() {
  // The pickles stand before the data, which is not read now; they are looked for in a growing piece of the file.
  std::vector<uint8_t> text;
  int64_t at = 0;
  const auto next = [&]() -> PickleValue* {
    int64_t n_used = 0;
    PickleValue* v = pickle_.read(file_.path(), at, Bytes(text).subspan(static_cast<size_t>(at)), &n_used);
    at += n_used;
    return v;
  };
  static constexpr std::string_view kMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13);
  std::string start(15, '\0');
  if (file_.n_bytes() >= 15) file_.read_at(0, {reinterpret_cast<uint8_t*>(start.data()), start.size()});
  if (start.substr(2) != kMagic) fail("offset 0: it is neither a zip nor a tar file, nor has it the old magic number");
  PickleValue* keys = nullptr;
  for (int64_t n = std::min<int64_t>(file_.n_bytes(), 1 << 20);; n = std::min(file_.n_bytes(), 8 * n)) {
    text.resize(static_cast<size_t>(n));
    file_.read_at(0, text);
    at = 0;
    try {
      next();
      const PickleValue* version = next();
      if (version->kind != Kind::Int || version->number != 1001) fail("offset 14: an unknown version of the format");
      const PickleValue* machine = next();
      for (size_t i = 0; machine->kind == Kind::Dict && i + 1 < machine->items.size(); i += 2)
        if (machine->items[i]->is(Kind::Text, "little_endian") && machine->items[i + 1]->number != 1)
          fail(fmt::format("offset {}: it is big-endian", at));
      root_ = next();
      keys = next();
      break;
    } catch (const Error&) {
      if (n == file_.n_bytes()) throw;
      pickle_.values().clear();
    }
  }
  std::map<std::string, int64_t> n_bytes_elem;
  for (PickleValue& v : pickle_.values()) {
    if (v.kind != Kind::Persistent) continue;
    std::string dtype;
    const PickleValue& id = *v.items[0];
    if (id.kind != Kind::Tuple || id.items.size() < 5 || id.items[1]->kind != Kind::Global || id.items[2]->kind != Kind::Text)
      fail("an unknown kind of storage");
    const TypeRow* type = find_type(&TypeRow::storage, last_word(id.items[1]->text));
    n_bytes_elem[id.items[2]->text] = type ? type->n_bytes : 1;
  }
  if (keys->kind != Kind::List) fail(fmt::format("offset {}: there is no list of storages", at));
  for (const PickleValue* key : keys->items) {
    uint8_t head[8];
    file_.read_at(at, head);
    const int64_t n = little64(head);
    const auto size = n_bytes_elem.find(key->text);
    if (key->kind != Kind::Text || size == n_bytes_elem.end() || storage_by_key_.contains(key->text))
      fail(fmt::format("offset {}: storage '{}' is used by no tensor or listed twice", at, key->text));
    if (n < 0 || n > (file_.n_bytes() - at - 8) / size->second)
      fail(fmt::format("offset {}: storage '{}' claims {} elements; the file has {} more bytes", at, key->text, n, file_.n_bytes() - at - 8));
    const int64_t n_bytes = n * size->second;
    storage_by_key_[key->text] = storages_.size();
    storages_.push_back({key->text, n_bytes, {.name = key->text, .off_bytes = at + 8, .n_packed = n_bytes, .n_bytes = n_bytes}, nullptr});
    at += 8 + n_bytes;
  }
  if (at != file_.n_bytes()) fail(fmt::format("offset {}: {} bytes after the last storage", at, file_.n_bytes() - at));
}

// Three files: `storages` and `tensors`, which are counts followed by a pickle and raw numbers each, and `pickle`, whose
// persistent ids are keys of tensors.
void TorchFile::read_old_tar() {
  std::map<std::string, ArchiveEntry> files;
  for (const ArchiveEntry& e : read_tar_directory(file_)) files[e.name.starts_with("./") ? e.name.substr(2) : e.name] = e;
  for (const char* name : {"storages", "tensors", "pickle"})
    if (!files.contains(name)) fail(fmt::format("offset 0: the tar file has no '{}'", name));
  std::vector<uint8_t> data;
  int64_t at = 0, base = 0;
  const auto open = [&](const char* name) {
    data = read_entry(file_, files[name]);
    base = files[name].off_bytes;
    at = 0;
  };
  const auto next = [&] {
    int64_t n_used = 0;
    PickleValue* v = pickle_.read(file_.path(), base + at, Bytes(data).subspan(static_cast<size_t>(at)), &n_used);
    at += n_used;
    return v;
  };
  const auto take64 = [&] {
    if (static_cast<int64_t>(data.size()) - at < 8) fail(fmt::format("offset {}: the data ends here", base + at));
    at += 8;
    return little64(data.data() + at - 8);
  };
  const auto count = [&] {
    const PickleValue* n = next();
    if (n->kind != Kind::Int || n->number < 0) fail(fmt::format("offset {}: a count is missing", base + at));
    return n->number;
  };
  const auto text_of = [&](const PickleValue& v) { return v.kind == Kind::Int ? std::to_string(v.number) : v.text; };
  const auto triple = [&] {
    const PickleValue* v = next();
    if (v->kind != Kind::Tuple || v->items.size() != 3) fail(fmt::format("offset {}: a key is missing", base + at));
    return v;
  };
  std::map<std::string, const TypeRow*> types;
  open("storages");
  for (int64_t i = count(); i > 0; --i) {
    const PickleValue* key = triple();
    const TypeRow* type = find_type(&TypeRow::storage, last_word(key->items[2]->text));
    const int64_t n = take64();
    if (!type || n < 0 || n > (static_cast<int64_t>(data.size()) - at) / type->n_bytes)
      fail(fmt::format("offset {}: a storage of {} claims {} elements; {} bytes are left", base + at, key->items[2]->text, n,
                       static_cast<int64_t>(data.size()) - at));
    const std::string name = text_of(*key->items[0]);
    types[name] = type;
    if (!storage_by_key_.emplace(name, storages_.size()).second) fail(fmt::format("offset {}: storage '{}' comes twice", base + at, name));
    const int64_t n_bytes = n * type->n_bytes;
    storages_.push_back({name, n_bytes, {.name = name, .off_bytes = base + at, .n_packed = n_bytes, .n_bytes = n_bytes}, nullptr});
    at += n_bytes;
  }
  std::map<std::string, int64_t> tensor_by_key;
  open("tensors");
  for (int64_t i = count(); i > 0; --i) {
    const PickleValue* key = triple();
    const auto storage = storage_by_key_.find(text_of(*key->items[1]));
    if (storage == storage_by_key_.end()) fail(fmt::format("offset {}: a tensor of an unknown storage", base + at));
    const TypeRow* type = types[storage->first];
    const auto rank = static_cast<int32_t>(take64());  // 32 bits and as many of padding
    if (rank < 0 || rank > 64) fail(fmt::format("offset {}: a tensor of {} axes", base + at, rank));
    TorchTensor t{std::string(type->dtype), type->n_bytes, storage->second, 0, {}, {}};
    for (int32_t k = 0; k < rank; ++k) t.shape.push_back(take64());
    for (int32_t k = 0; k < rank; ++k) t.strides.push_back(take64());
    t.off_elems = take64();
    tensor_by_key[text_of(*key->items[0])] = static_cast<int64_t>(tensors_.size());
    tensors_.push_back(std::move(t));
  }
  open("pickle");
  root_ = next();
  for (PickleValue& v : pickle_.values()) {
    if (v.kind != Kind::Persistent) continue;
    const auto it = tensor_by_key.find(text_of(*v.items[0]));
    if (it == tensor_by_key.end()) fail(fmt::format("offset {}: tensor '{}' is not in the file", base, text_of(*v.items[0])));
    v.index = it->second;
  }
}

// The storage that a persistent id ('storage', type, key, device, n, view) names; `dtype` stays empty for bytes.
int64_t TorchFile::storage_of(const PickleValue& value, std::string& dtype) {
  if (value.kind != Kind::Persistent || value.items[0]->kind != Kind::Tuple) return -1;
  const std::vector<PickleValue*>& id = value.items[0]->items;
  if (id.size() < 5 || !id[0]->is(Kind::Text, "storage") || id[1]->kind != Kind::Global || id[2]->kind != Kind::Text) return -1;
  if (id.size() > 5 && id[5]->kind != Kind::None) return -1;  // views of storages, gone since 2017
  const std::string_view type = last_word(id[1]->text);
  const TypeRow* row = find_type(&TypeRow::storage, type);
  if (!row && type != "UntypedStorage" && type != "_UntypedStorage") fail(fmt::format("a storage of the unknown type '{}'", type));
  if (row) dtype = row->dtype;
  const auto it = storage_by_key_.find(id[2]->text);
  if (it == storage_by_key_.end()) fail(fmt::format("storage '{}' is not in the file", id[2]->text));
  if (id[4]->kind != Kind::Int || id[4]->number < 0 || id[4]->number > storages_[it->second].n_bytes / (row ? row->n_bytes : 1))
    fail(fmt::format("storage '{}' claims {} elements of {}; the file has {} bytes of it", it->first, id[4]->number, type,
                     storages_[it->second].n_bytes));
  return static_cast<int64_t>(it->second);
}

void TorchFile::find_tensors() {
  const auto add = [&](PickleValue& v, TorchTensor t) {
    v.index = static_cast<int64_t>(tensors_.size());
    tensors_.push_back(std::move(t));
  };
  // NumPy's arrays: bytes in the pickle.
  const auto add_array = [&](PickleValue& v, const PickleValue& dtype, std::vector<int64_t> shape, bool fortran, const PickleValue& data) {
    const bool is_dtype = dtype.is(Kind::Call, "numpy dtype") && !dtype.items.empty() && dtype.items[0]->kind == Kind::Text;
    const TypeRow* row = is_dtype ? find_type(&TypeRow::numpy, dtype.items[0]->text) : nullptr;
    if (!row) fail(fmt::format("a NumPy array of the unknown dtype '{}'", is_dtype ? dtype.items[0]->text : "?"));
    const PickleValue* order = dtype.state;
    if (order && order->items.size() > 1 && order->items[1]->is(Kind::Text, ">")) fail("a NumPy array that is big-endian");
    PickleValue* bytes = &pickle_.values().emplace_back();
    bytes->kind = Kind::Data;
    if (!pickle_bytes(data, bytes->text)) fail("a NumPy array without bytes");
    TorchTensor t{std::string(row->dtype), row->n_bytes, storages_.size(), 0, std::move(shape), {}};
    int64_t n = 1;
    t.strides.resize(t.shape.size());
    for (size_t i = 0; i < t.shape.size(); ++i) {
      const size_t axis = fortran ? i : t.shape.size() - 1 - i;
      t.strides[axis] = n;
      if (__builtin_mul_overflow(n, t.shape[axis], &n)) fail("a NumPy array of too many elements");
    }
    const auto n_bytes = static_cast<int64_t>(bytes->text.size());
    if (n != n_bytes / row->n_bytes || n_bytes % row->n_bytes) fail(fmt::format("a NumPy array of {} elements has {} bytes", n, n_bytes));
    storages_.push_back({"", n_bytes, {}, &bytes->text});
    add(v, std::move(t));
  };
  const size_t n_values = pickle_.values().size();
  for (size_t i = 0; i < n_values; ++i) {
    PickleValue& v = pickle_.values()[i];
    const bool is_array = v.text.ends_with("multiarray _reconstruct"), is_scalar = v.text.ends_with("multiarray scalar");
    if (v.is(Kind::Object, "torch.nn.parameter Parameter") && v.state && !v.state->items.empty()) {
      v.index = v.state->items[0]->index;
    } else if (v.kind != Kind::Call) {
      continue;
    } else if (v.text.starts_with("torch._utils _rebuild_parameter")) {
      if (v.items.empty() || v.items[0]->index < 0) fail("a parameter without tensor");
      v.index = v.items[0]->index;
    } else if (v.text.starts_with("torch._utils _rebuild_tensor")) {
      std::string dtype;
      TorchTensor t;
      const bool v3 = v.text.ends_with("_v3");
      const int64_t storage = v.items.size() >= (v3 ? 7u : 4u) ? storage_of(*v.items[0], dtype) : -1;
      if (v3 && v.items.size() >= 7 && v.items[6]->kind == Kind::Global) dtype = v.items[6]->text;
      const TypeRow* row = v3 ? find_type(&TypeRow::torch, last_word(dtype)) : find_type(&TypeRow::dtype, dtype);
      if (storage < 0 || !row || v.items[1]->kind != Kind::Int || !ints_of(*v.items[2], t.shape) || !ints_of(*v.items[3], t.strides) ||
          t.strides.size() != t.shape.size())
        fail(fmt::format("a tensor whose storage, dtype '{}', shape or strides cannot be understood", dtype));
      t.dtype = row->dtype;
      t.n_bytes_elem = row->n_bytes;
      t.storage = static_cast<size_t>(storage);
      t.off_elems = v.items[1]->number;
      add(v, std::move(t));
    } else if (is_array && v.state && v.state->kind == Kind::Tuple && v.state->items.size() == 5) {
      const std::vector<PickleValue*>& s = v.state->items;
      std::vector<int64_t> shape;
      if (!ints_of(*s[1], shape)) fail("a NumPy array without shape");
      add_array(v, *s[2], std::move(shape), s[3]->number != 0, *s[4]);
    } else if (is_scalar && v.items.size() == 2) {
      add_array(v, *v.items[0], {}, false, *v.items[1]);
    }
  }
  for (const TorchTensor& t : tensors_) {
    const int64_t n_have = storages_[t.storage].n_bytes / t.n_bytes_elem;
    int64_t last = t.off_elems, step = 0;
    bool fits = last >= 0, empty = false;
    for (size_t i = 0; i < t.shape.size(); ++i) {
      fits = fits && t.shape[i] >= 0 && t.strides[i] >= 0;
      empty = empty || t.shape[i] == 0;
      fits = fits && !__builtin_mul_overflow(std::max<int64_t>(t.shape[i] - 1, 0), t.strides[i], &step) && !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || (empty ? t.off_elems > n_have : last >= n_have))
      fail(fmt::format("a tensor of shape [{}], strides [{}] from element {} on reaches outside of its storage of {}", fmt::join(t.shape, ", "),
                       fmt::join(t.strides, ", "), t.off_elems, n_have));
  }
}

std::vector<uint8_t> TorchFile::read(const TorchStorage& storage) const {
  if (storage.bytes) return {storage.bytes->begin(), storage.bytes->end()};
  return read_entry(file_, storage.entry);
}

TorchLayout layout_of(const TorchTensor& t) {
  TorchLayout l;
  std::vector<size_t> order;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    l.shape.push_back(t.strides[i] != 0 || t.shape[i] == 0 ? t.shape[i] : 1);
    order.push_back(i);
  }
  const auto stride = [&](size_t axis) { return l.shape[axis] == 1 ? 0 : t.strides[axis]; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return stride(a) > stride(b); });
  l.sizes.resize(order.size());
  l.axes.resize(order.size());
  for (size_t k = order.size(); k-- > 0;) {
    const size_t axis = order[k];
    l.dense = l.dense && (l.shape[axis] == 1 || t.strides[axis] == l.n_elems);
    l.n_elems *= l.shape[axis];
    l.sizes[k] = l.shape[axis];
    l.axes[axis] = static_cast<int64_t>(k);
  }
  return l;
}

std::vector<uint8_t> TorchFile::gather(const TorchTensor& t, const TorchLayout& layout) {
  int64_t n_bytes_all = 1 << 20;
  for (const TorchStorage& s : storages_) n_bytes_all += 16 * s.n_bytes;
  const int64_t n_have = storages_[t.storage].n_bytes;
  const bool fits = layout.n_elems <= n_have / t.n_bytes_elem;
  if (fits) n_bytes_copied_ += layout.n_elems * t.n_bytes_elem;
  if (!fits || n_bytes_copied_ > n_bytes_all)
    fail(fmt::format("a tensor of shape [{}] claims more elements than its storage of {} bytes has", fmt::join(t.shape, ", "), n_have));
  const std::vector<uint8_t> from = read(storages_[t.storage]);
  const auto n_elem = static_cast<size_t>(t.n_bytes_elem);
  std::vector<uint8_t> out(static_cast<size_t>(layout.n_elems) * n_elem);
  std::vector<int64_t> at(layout.shape.size(), 0);
  int64_t off = t.off_elems;
  for (size_t i = 0; i < out.size(); i += n_elem) {
    std::memcpy(out.data() + i, from.data() + static_cast<size_t>(off) * n_elem, n_elem);
    for (size_t k = at.size(); k-- > 0;) {
      off += t.strides[k];
      if (++at[k] < layout.shape[k]) break;
      off -= t.strides[k] * layout.shape[k];
      at[k] = 0;
    }
  }
  return out;
}

std::vector<std::pair<std::string, size_t>> TorchFile::named_tensors() const {
  struct Open {
    const PickleValue* value;
    std::string name;
    int depth;
  };
  std::vector<std::pair<std::string, size_t>> out;
  std::vector<Open> stack{{root_, "", 0}};
  while (!stack.empty()) {
    const Open at = std::move(stack.back());
    stack.pop_back();
    const PickleValue& v = *at.value;
    if (at.depth > 64 || out.size() + stack.size() > 1'000'000)
      fail(fmt::format("'{}': the object is nested too deep or holds itself", at.name.substr(0, 80)));
    if (v.index >= 0) {
      out.emplace_back(at.name, static_cast<size_t>(v.index));
      continue;
    }
    std::vector<Open> parts;
    const auto add = [&](const std::string& key, const PickleValue* item) {
      parts.push_back({item, at.name.empty() ? key : at.name + "." + key, at.depth + 1});
    };
    const auto add_pairs = [&](const std::vector<PickleValue*>& list) {
      for (size_t i = 0; i + 1 < list.size(); i += 2)
        if (list[i]->kind == Kind::Int || list[i]->kind == Kind::Text)
          add(list[i]->kind == Kind::Int ? std::to_string(list[i]->number) : list[i]->text, list[i + 1]);
    };
    if (v.kind == Kind::Dict) add_pairs(v.items);
    if (v.kind == Kind::List || v.kind == Kind::Tuple)
      for (size_t i = 0; i < v.items.size(); ++i) add(std::to_string(i), v.items[i]);
    if (v.kind == Kind::Call || v.kind == Kind::Object) add_pairs(v.appended);
    if (v.kind == Kind::Object && v.state) parts.push_back({v.state, at.name, at.depth + 1});
    stack.insert(stack.end(), std::make_move_iterator(parts.rbegin()), std::make_move_iterator(parts.rend()));
  }
  return out;
}

}  // namespace whit::io
