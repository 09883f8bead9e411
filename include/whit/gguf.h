// Models in the GGUF format of llama.cpp.
#pragma once
#include "io/gguf.h"
#include "whit/state.h"

namespace whit::nn {

struct Gguf {
  io::GgufMetadata metadata;  ///< in the order of the file
  StateDict tensors;          ///< shapes are row-major; quantised tensors are unpacked to float32
};

/// Reads a model; one in parts (`-00001-of-0000N.gguf`) by the path of its first.
/// errors: as io::GgufFile
Gguf gguf_load(const std::string& path, const TensorOptions& o = {});

}  // namespace whit::nn
