// Files: safetensors and data sets.
#include <functional>
#include <unordered_map>

#include "convert.h"
#include "io/datasets.h"
#include "io/safetensors.h"
#include "io/tensors.h"
#include "whit/datasets.h"

namespace whit::python {
namespace {

nn::StateDict to_state(nb::dict tensors, const char* op) {
  nn::StateDict state;
  for (auto [k, v] : tensors) {
    WHIT_USER(nb::isinstance<nb::str>(k), Type, "[{}] the name {} is no text", op, nb::repr(k).c_str());
    state.emplace_back(nb::cast<std::string>(k), to_tensor(v, op));
  }
  return state;
}
nn::Metadata to_metadata(nb::dict d) {
  nn::Metadata meta;
  for (auto [k, v] : d) meta.emplace_back(nb::cast<std::string>(nb::str(k)), nb::cast<std::string>(nb::str(v)));
  return meta;
}
nb::dict from_metadata(const nn::Metadata& meta) {
  nb::dict d;
  for (const auto& [k, v] : meta) d[k.c_str()] = v;
  return d;
}

// A path, or a tensor that holds the bytes of a file.
template <class F> auto with_file(nb::handle source, const char* op, const F& f) {
  if (Tensor* t = nullptr; nb::try_cast<Tensor*>(source, t, false) && t) {
    WHIT_USER(t->ndim() == 1 && t->dtype() == DType::UInt8, Value, "[{}] a tensor of {} {}; expected bytes, (n,) of uint8", op, t->shape().str(),
              name(t->dtype()));
    const std::vector<std::byte> bytes = unlocked([&] { return t->bytes(); });
    const io::Bytes memory(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    return f(std::make_unique<io::InputFile>("<tensor>", memory));
  }
  return f(std::make_unique<io::InputFile>(nb::cast<std::string>(nb::str(source))));
}

// The object that a pickle describes, of Python's own types and `dummy`, an inert class for all others.
class PickleObjects {
 public:
  using Value = io::PickleValue;
  using Kind = Value::Kind;
  PickleObjects(const std::vector<Tensor>& tensors, nb::handle dummy) : dummy_(dummy) {
    for (const Tensor& t : tensors) tensors_.push_back(nb::cast(t));
  }

  nb::object get(const Value& v, int depth = 0) {
    if (v.index >= 0) return tensors_[static_cast<size_t>(v.index)];
    if (const auto it = made_.find(&v); it != made_.end()) return it->second;
    WHIT_USER(depth < 500, Io, "[torch_load] the object is nested over {} levels deep", depth);
    const auto keep = [&](nb::object o) { return made_[&v] = std::move(o); };
    switch (v.kind) {
      case Kind::None: return nb::none();
      case Kind::Bool: return nb::bool_(v.number != 0);
      case Kind::Int: return nb::int_(v.number);
      case Kind::BigInt:
        return nb::handle(reinterpret_cast<PyObject*>(&PyLong_Type))
            .attr("from_bytes")(nb::bytes(v.text.data(), v.text.size()), "little", nb::arg("signed") = true);
      case Kind::Float: return nb::float_(v.real);
      case Kind::Text: {  // Python 2 has no other strings; what is no text is bytes
        PyObject* text = PyUnicode_DecodeUTF8(v.text.data(), static_cast<Py_ssize_t>(v.text.size()), nullptr);
        if (text) return keep(nb::steal(text));
        PyErr_Clear();
        return keep(nb::bytes(v.text.data(), v.text.size()));
      }
      case Kind::Data: return keep(nb::bytes(v.text.data(), v.text.size()));
      case Kind::List: {
        nb::list l;
        keep(l);
        for (const Value* item : v.items) l.append(get(*item, depth + 1));
        return l;
      }
      case Kind::Tuple: return keep(nb::tuple(items(v.items, depth)));
      case Kind::Set: return keep(set(v.items, depth));
      case Kind::Dict: {
        nb::dict d;
        keep(d);
        fill(d, v.items, depth);
        return d;
      }
      case Kind::Persistent: return get(*v.items[0], depth + 1);
      case Kind::Global: return keep(v.text.starts_with("torch ") && dtype(v) ? nb::object(dtype_object(*dtype(v))) : make_dummy(v.text));
      case Kind::Call: return call(v, depth);
      case Kind::Object: return object(v, depth);
    }
    return nb::none();
  }

 private:
  static std::optional<DType> dtype(const Value& v) {
    try {
      return dtype_by_name(v.text.substr(6));
    } catch (const Error&) {  // a class of torch, not a dtype
      return {};
    }
  }
  nb::list items(const std::vector<Value*>& list, int depth) {
    nb::list l;
    for (const Value* item : list) l.append(get(*item, depth + 1));
    return l;
  }
  nb::object set(const std::vector<Value*>& list, int depth) {
    nb::object s = nb::steal(PySet_New(items(list, depth).ptr()));
    if (!s.is_valid()) throw nb::python_error();
    return s;
  }
  void fill(nb::dict& d, const std::vector<Value*>& list, int depth) {
    for (size_t i = 0; i + 1 < list.size(); i += 2) d[get(*list[i], depth + 1)] = get(*list[i + 1], depth + 1);
  }
  nb::object make_dummy(const std::string& text) {
    std::string name = text;
    std::replace(name.begin(), name.end(), ' ', '.');
    return dummy_(name);
  }
  // A constructor of the list in io/pickle.cpp.
  nb::object call(const Value& v, int depth) {
    const std::string_view name = v.text;
    const Value* first = v.items.empty() ? nullptr : v.items[0];
    if (name.starts_with("collections ") || name == "builtins dict") {
      nb::dict d;
      made_[&v] = d;
      for (const Value* arg : v.items) {  // defaultdict's first argument is a class, which is not needed
        if (arg->kind == Kind::Dict) fill(d, arg->items, depth);
        for (const Value* pair : arg->kind == Kind::List ? arg->items : std::vector<Value*>())
          if (pair->items.size() == 2) fill(d, pair->items, depth);
      }
      fill(d, v.appended, depth);
      return d;
    }
    if (name == "builtins set" || name == "builtins frozenset") {
      nb::object s = set(first ? first->items : v.items, depth);
      return made_[&v] = name == "builtins set" ? s : nb::steal(PyFrozenSet_New(s.ptr()));
    }
    if (name == "builtins list" || name == "builtins tuple" || name == "torch Size") {
      nb::list l = items(first ? first->items : v.items, depth);
      for (const Value* item : v.appended) l.append(get(*item, depth + 1));
      return made_[&v] = name == "builtins list" ? nb::object(l) : nb::object(nb::tuple(l));
    }
    if (name == "torch device" && first) return get(*first, depth + 1);
    std::string bytes;
    if (io::pickle_bytes(v, bytes)) return made_[&v] = nb::bytes(bytes.data(), bytes.size());
    return object(v, depth);
  }
  nb::object object(const Value& v, int depth) {
    nb::object o = make_dummy(v.text);
    made_[&v] = o;
    if (!v.items.empty()) o.attr("args") = nb::tuple(items(v.items, depth));
    if (!v.appended.empty()) o.attr("items") = items(v.appended, depth);
    const auto set_state = [&](const Value* state) {
      if (state->kind == Kind::Dict) {
        for (size_t i = 0; i + 1 < state->items.size(); i += 2)
          nb::dict(o.attr("__dict__"))[get(*state->items[i], depth + 1)] = get(*state->items[i + 1], depth + 1);
      } else if (state->kind != Kind::None) {
        o.attr("state") = get(*state, depth + 1);
      }
    };
    if (v.state && v.state->kind == Kind::Tuple && v.state->items.size() == 2) {  // attributes and slots
      for (const Value* part : v.state->items) set_state(part);
    } else if (v.state) {
      set_state(v.state);
    }
    return o;
  }

  nb::handle dummy_;
  std::vector<nb::object> tensors_;
  std::unordered_map<const Value*, nb::object> made_;
};

nb::dict to_dict(const nn::StateDict& files) {
  nb::dict d;
  for (const auto& [name, t] : files)
    d[nb::steal(PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"))] = nb::cast(t);
  return d;
}

nb::object to_object(const io::GgufValue& v) {
  return std::visit(
      [](const auto& x) -> nb::object {
        if constexpr (requires {
                        x.capacity();
                        x.front().value;
                      }) {
          nb::list l;
          for (const io::GgufValue& item : x) l.append(to_object(item));
          return l;
        } else {
          return nb::cast(x);
        }
      },
      v.value);
}
nb::object from_gguf(const io::GgufFile& file) {
  const nn::Gguf g = unlocked([&] { return nn::gguf_load(file); });
  nb::dict metadata;
  for (const auto& [k, v] : g.metadata) metadata[k.c_str()] = to_object(v);
  return nb::make_tuple(metadata, to_dict(g.tensors));
}

}  // namespace

void bind_io(nb::module_& m) {
  m.def("tensor_bytes", [](const Tensor& t) {
    const std::vector<std::byte> b = unlocked([&] { return t.bytes(); });
    return nb::bytes(b.data(), b.size());
  });
  m.def("safe_load", [](nb::handle source) {
    if (!nb::isinstance<Tensor>(source)) return to_dict(nn::safe_load(nb::cast<std::string>(nb::str(source))));
    return with_file(source, "safe_load", [](std::unique_ptr<io::InputFile> f) { return to_dict(nn::safe_load(io::SafetensorsFile(std::move(f)))); });
  });
  m.def("torch_load", [](nb::handle source, nb::handle dummy) {
    return with_file(source, "torch_load", [&](std::unique_ptr<io::InputFile> file) {
      io::TorchFile torch(*file);
      return PickleObjects(unlocked([&] { return nn::torch_tensors(torch, file->path()); }), dummy).get(torch.root());
    });
  });
  m.def("gguf_load", [](nb::handle source) {
    if (!nb::isinstance<Tensor>(source)) return from_gguf(io::GgufFile(nb::cast<std::string>(nb::str(source))));
    return with_file(source, "gguf_load", [](std::unique_ptr<io::InputFile> f) { return from_gguf(io::GgufFile(std::move(f))); });
  });
  m.def("ggml_data_to_tensor", [](const Tensor& t, int64_t n, int64_t type) {
    constexpr char kOp[] = "[ggml_data_to_tensor] the tensor";
    const io::GgmlType& kind = io::ggml_type(type, kOp);
    WHIT_USER(t.ndim() == 1 && t.dtype() == DType::UInt8, Value, "{} is {} {}; expected bytes, (n,) of uint8", kOp, t.shape().str(), name(t.dtype()));
    return unlocked([&] {
      const std::vector<std::byte> bytes = t.bytes();
      const io::Bytes blocks(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      io::ggml_check(kind, blocks, n, kOp);
      std::vector<uint8_t> out(static_cast<size_t>(n * io::ggml_n_bytes_elem(kind)));
      io::ggml_unpack(kind, blocks, n, out.data());
      return Tensor::from_bytes(out.data(), nn::safe_dtype(std::string(kind.dtype), "ggml_data_to_tensor", "it"), n);
    });
  });
  m.def("zip_extract", [](nb::handle source) {
    return with_file(source, "zip_extract", [](std::unique_ptr<io::InputFile> f) { return to_dict(nn::zip_extract(*f)); });
  });
  m.def("tar_extract", [](nb::handle source) {
    return with_file(source, "tar_extract", [](std::unique_ptr<io::InputFile> f) { return to_dict(nn::tar_extract(*f)); });
  });
  m.def("safe_save", [](nb::dict tensors, const std::string& path, nb::dict metadata) {
    const nn::StateDict state = to_state(tensors, "safe_save");
    const nn::Metadata meta = to_metadata(metadata);
    unlocked([&] { nn::safe_save(state, path, meta); });
  });
  m.def("save_checkpoint", [](nb::dict tensors, const std::string& path, nb::dict metadata) {
    const nn::StateDict state = to_state(tensors, "save_checkpoint");
    const nn::Metadata meta = to_metadata(metadata);
    unlocked([&] { nn::save_checkpoint(state, path, meta); });
  });
  m.def("load_checkpoint", [](nb::dict tensors, const std::string& path) {
    const nn::StateDict state = to_state(tensors, "load_checkpoint");
    return from_metadata(unlocked([&] { return nn::load_checkpoint(state, path); }));
  });
  m.def("safe_load_metadata", [](nb::handle source) {
    return with_file(source, "safe_load_metadata", [](std::unique_ptr<io::InputFile> f) {
      const io::SafetensorsFile file(std::move(f));
      nb::dict header;
      if (!file.metadata().empty()) header["__metadata__"] = from_metadata(file.metadata());
      for (const io::SafetensorsEntry& e : file.entries()) {
        nb::dict d;
        d["dtype"] = e.dtype;
        d["shape"] = e.shape;
        d["data_offsets"] = nb::make_tuple(e.off_bytes - file.off_data(), e.off_bytes - file.off_data() + e.n_bytes);
        header[e.name.c_str()] = d;
      }
      return nb::make_tuple(file.off_data(), header);
    });
  });
  const auto data_set = [](const auto& find, const auto& load) {
    try {
      find();
    } catch (const Error& e) {
      PyErr_SetString(PyExc_FileNotFoundError, e.what());
      throw nb::python_error();
    }
    const nn::datasets::ImageTensors d = unlocked(load);
    return nb::make_tuple(d.x_train, d.y_train, d.x_test, d.y_test);
  };
  m.def("mnist", [=](bool fashion, const std::string& folder) {
    return data_set([&] { io::find_mnist_folder(fashion, folder); }, [&] { return nn::datasets::mnist({.fashion = fashion, .folder = folder}); });
  });
  m.def("cifar", [=](const std::string& folder) {
    return data_set([&] { io::find_cifar_folder(folder); }, [&] { return nn::datasets::cifar({.folder = folder}); });
  });
}

}  // namespace whit::python
