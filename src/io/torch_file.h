// Files that torch.save wrote: the zip format, the one before it, and the tar of the first versions. See io/pickle.h for
// what is done with the pickle inside.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/archive.h"
#include "io/file.h"
#include "io/pickle.h"

namespace whit::io {

/// A view of a storage, or (of NumPy) an array of its own.
struct TorchTensor {
  std::string dtype;  ///< as safetensors spells it
  int64_t n_bytes_elem = 0;
  size_t storage = 0;                   ///< index into TorchFile::storages
  int64_t off_elems = 0;                ///< of the first element in the storage
  std::vector<int64_t> shape, strides;  ///< strides in elements
};
/// How a tensor lies in its storage. Axes of stride 0, which repeat one element, count as single.
struct TorchLayout {
  std::vector<int64_t> shape;  ///< of the tensor, with 1 for axes that repeat
  int64_t n_elems = 1;         ///< the product of it
  bool dense = true;           ///< its elements are n_elems in a row, as an array of `sizes`
  std::vector<int64_t> sizes;  ///< of the axes from the longest stride to the shortest
  std::vector<int64_t> axes;   ///< where the tensor's axes are among those
};
TorchLayout layout_of(const TorchTensor& t);

struct TorchStorage {
  std::string key;
  int64_t n_bytes = 0;
  ArchiveEntry entry;                  ///< where it lies, or
  const std::string* bytes = nullptr;  ///< what the pickle holds
};

class TorchFile {
 public:
  /// The file must outlive this.
  /// errors: Io as read_zip_directory, read_tar_directory and Pickle::read; for a tensor that reaches outside of its storage,
  /// or has an unknown dtype; for storages that lie outside of the file or are larger than what is there
  explicit TorchFile(const InputFile& file);

  /// The object that was saved. A value whose `index` is not negative is tensors()[index], whatever its kind.
  const PickleValue& root() const { return *root_; }
  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  const std::vector<TorchStorage>& storages() const { return storages_; }
  std::vector<uint8_t> read(const TorchStorage& storage) const;
  /// The elements of a tensor that is not dense, row-major and of the layout's shape.
  /// errors: Io when all such copies together exceed 16 times the bytes of the storages
  std::vector<uint8_t> gather(const TorchTensor& t, const TorchLayout& layout);
  /// The tensors by the path of keys and positions that leads to each from the root. errors: Io for an object that is
  /// nested over 64 levels deep or holds itself
  std::vector<std::pair<std::string, size_t>> named_tensors() const;

 private:
  void read_zip();
  void read_legacy();
  void read_old_tar();
  void find_tensors();
  int64_t storage_of(const PickleValue& id, std::string& dtype);
  [[noreturn]] void fail(const std::string& reason) const;

  const InputFile& file_;
  Pickle pickle_;
  PickleValue* root_ = nullptr;
  std::vector<TorchTensor> tensors_;
  std::vector<TorchStorage> storages_;
  std::map<std::string, size_t> storage_by_key_;
  int64_t n_bytes_copied_ = 0;
};

}  // namespace whit::io
