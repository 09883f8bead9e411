// What C++'s and Python's readers of files share: they work on an open file, which may be memory.
#pragma once
#include "io/safetensors.h"
#include "io/torch_file.h"
#include "whit/gguf.h"

namespace whit::nn {

/// By the name that safetensors has for it; io/ spells all dtypes so. `op` and `what` begin the error.
/// errors: Value for another name
DType safe_dtype(const std::string& text, const char* op, const std::string& what);

/// One for each of file.tensors(). Tensors of one storage share memory, as they did where they were saved, unless their
/// strides leave gaps. errors: Value for a dtype that whit lacks; Io as file.read and file.gather
std::vector<Tensor> torch_tensors(io::TorchFile& file, const std::string& path, const TensorOptions& o = {});

StateDict safe_load(const io::SafetensorsFile& file, const TensorOptions& o = {});
StateDict zip_extract(const io::InputFile& file, const TensorOptions& o = {});
StateDict tar_extract(const io::InputFile& file, const TensorOptions& o = {});
Gguf gguf_load(const io::GgufFile& file, const TensorOptions& o = {});

}  // namespace whit::nn
