// Names and tensors of a model. A model shows its parts by `void visit(nn::Walk& walk)`:
//   struct Net {
//     nn::Linear l1{784, 128}, l2{128, 10};
//     void visit(nn::Walk& w) { w("l1", l1), w("l2", l2); }
//   };
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "whit/tensor.h"

namespace whit::nn {

/// Names and tensors in the order of the model. The handles are those of the model: assigning to one changes it.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

/// Collects what a model shows. Names of nested parts are joined with dots; items of a vector are numbered.
class Walk {
 public:
  explicit Walk(std::string prefix = {}) : prefix_(std::move(prefix)) {}

  void operator()(std::string_view name, Tensor& t) {
    if (t.defined()) found_.emplace_back(prefix_ + std::string(name), t);
  }
  template <class M>
    requires requires(M& m, Walk& w) { m.visit(w); }
  void operator()(std::string_view name, M& m) {
    const size_t n = prefix_.size();
    prefix_ += std::string(name) + ".";
    m.visit(*this);
    prefix_.resize(n);
  }
  template <class M> void operator()(std::string_view name, std::vector<M>& list) {
    const size_t n = prefix_.size();
    prefix_ += std::string(name) + ".";
    for (size_t i = 0; i < list.size(); ++i) (*this)(std::to_string(i), list[i]);
    prefix_.resize(n);
  }
  StateDict take() && { return std::move(found_); }

 private:
  std::string prefix_;
  StateDict found_;
};

/// All tensors of a model. `prefix` is put before every name as it is, with its own dot.
template <class M> StateDict get_state_dict(M& model, std::string prefix = {}) {
  Walk w(std::move(prefix));
  model.visit(w);
  return std::move(w).take();
}
template <class M> std::vector<Tensor> get_parameters(M& model) {
  std::vector<Tensor> out;
  for (auto& [name, t] : get_state_dict(model)) out.push_back(t);
  return out;
}

/// Copies tensors into those of the same name. Shapes () and (1,) count as equal.
/// errors: Key for a name of the model that `from` lacks, when strict; Value for another shape
void load_state(const StateDict& into, const StateDict& from, bool strict = true);
template <class M> void load_state_dict(M& model, const StateDict& from, bool strict = true) { load_state(get_state_dict(model), from, strict); }

/// Writes and reads a safetensors file. Without a device in the options the tensors are parts of the file, read when they are wanted.
/// errors: Value for a weak dtype; Io
void safe_save(const StateDict& tensors, const std::string& path, const std::vector<std::pair<std::string, std::string>>& metadata = {});
StateDict safe_load(const std::string& path, const TensorOptions& o = {});

/// What a training run needs to go on as if it had not stopped, bit for bit: the tensors of its parts (model, optimiser, plan),
/// one that stands at two places once, and the random streams. The file is a safetensors file.
/// `load_checkpoint` writes into the memory that the tensors have, so that captured functions see it; returns the metadata.
/// errors: Key for a name that only one side has, Value for another shape or dtype, both before anything is changed; Io
using Metadata = std::vector<std::pair<std::string, std::string>>;
void save_checkpoint(const StateDict& parts, const std::string& path, const Metadata& metadata = {});
Metadata load_checkpoint(const StateDict& parts, const std::string& path);
template <class M>
  requires requires(M& m, Walk& w) { m.visit(w); }
void save_checkpoint(M& run, const std::string& path, const Metadata& metadata = {}) {
  save_checkpoint(get_state_dict(run), path, metadata);
}
template <class M>
  requires requires(M& m, Walk& w) { m.visit(w); }
Metadata load_checkpoint(M& run, const std::string& path) {
  return load_checkpoint(get_state_dict(run), path);
}

/// The tensors of a file that torch.save wrote, by the path of keys and positions that leads to each. The pickle inside is
/// read as data: nothing is called, an object of an unknown class is only a holder of its state.
/// errors: Io for a file that is damaged, lies about itself, or wants to call something; Value for a dtype that whit lacks
StateDict torch_load(const std::string& path, const TensorOptions& o = {});
/// The files of a zip or tar archive (also .tar.gz), by name, as uint8 of shape (bytes,).
/// errors: Io for names that leave the folder or come twice, data outside of the archive or overlapping, wrong checksums
StateDict zip_extract(const std::string& path, const TensorOptions& o = {});
StateDict tar_extract(const std::string& path, const TensorOptions& o = {});

}  // namespace whit::nn
