// The catalogue: one row an operation of Tensor, with the shapes, dtypes and values it is tested with.
#pragma once
#include <string>
#include <vector>

#include "whit/tensor.h"

namespace whit::ops {

enum Kinds : unsigned { kFloat = 1, kInt = 2, kBool = 4, kNumber = kFloat | kInt, kAny = kNumber | kBool };

struct Row {
  std::string name;
  std::vector<Dims> shapes;  ///< of the inputs
  unsigned kinds;            ///< dtypes that it takes
  Tensor (*fn)(const std::vector<Tensor>&);
  double low = -2, high = 2;  ///< range of the inputs
  bool has_gradient = true;   ///< of its float inputs; checked numerically too
  double n_epsilons = 16;     ///< allowed difference to the reference in units of the dtype's epsilon
  bool is_local = false;      ///< each result depends on few elements, or chooses some: special values are tried too
};

const std::vector<Row>& catalogue();
/// Of catalogue_gradients.cpp.
void add_gradient_rows(std::vector<Row>& rows);

}  // namespace whit::ops
