// Symbolic sizes: a Variable is a named size whose value comes with the run, so that one kernel serves all values.
//   UOp i = variable("i", 1, 8);
//   Tensor y = x[Slice{{}, bind(i, 3)}].sum();     // x's first three elements; other values compile nothing
// Sizes are expressions of the index type (i + 1, i * 2, floor_div(i, 2)), taken wherever a shape, a slice or a place
// is given. A bound variable as an input of a TinyJit, as Tensor(bind(i, 3)), may have another value at each call.
#pragma once
#include "ir/build.h"
