// The batch table: how each op works on sources that have one more axis, in front. vmap is this pass over a graph.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/uop.h"

namespace whit {

/// True when a graph with the op can be batched.
bool has_batch_rule(Op op);

/// A stand-in for a value while a function is traced: RESHAPE of a BUFFER that can have no memory. Builders look through
/// a RESHAPE, so what is replaced later is the BUFFER.
UOp tracer(DType dtype, std::span<const int64_t> dims, std::string_view device);
/// errors: NotImplemented for a shape with symbolic sizes
UOp tracer(const UOp& like);
/// cost: linear in the graph
bool has_tracer(const UOp& graph);

using Replacements = std::unordered_map<const Node*, UOp>;
/// Adds: the stand-in is replaced by a value in its shape, or with an axis of examples in front.
void replace_tracer(Replacements& map, const UOp& tracer, const UOp& value);

/// The values of `roots` for n examples at once: `leaves` maps nodes of the graph to values with an axis of n in front
/// of the node's shape. Each result has that axis in front too, also where nothing depends on a leaf (there it is
/// repeated). `iota` is 0, 1 .. n-1 as int64. Memory that was made after `first` (a tracer) and is written with values
/// that differ between examples becomes memory for all of them.
/// errors: NotImplemented, naming an op without a row; Runtime when such a value is stored into older memory
/// cost: linear in the graph
std::vector<UOp> batched(std::span<const UOp> roots, const Replacements& leaves, const UOp& iota, const UOp& first);

}  // namespace whit
