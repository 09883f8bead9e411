// Contractions: matmul and einsum. Each is one sum over a product of expanded operands; the scheduler sees the
// contraction and never makes the product.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

Tensor Tensor::dot(const Tensor& w, std::optional<DType> dt) const {
  must_be_defined("matmul", *this);
  must_be_defined("matmul", w);
  WHIT_USER(ndim() > 0 && w.ndim() > 0, Runtime, "[matmul] shapes {} and {}; expected at least one axis each", shape(), w.shape());
  const size_t inner = w.ndim() >= 2 ? w.ndim() - 2 : 0;
  const Sint columns = size_of(shape(), ndim() - 1), rows = size_of(w.shape(), inner);
  WHIT_USER(columns == rows, Runtime, "[matmul] shapes {} and {}: {} columns against {} rows", shape(), w.shape(), columns, rows);
  if (columns.is_symbolic())  // zeros add nothing
    return whole_axes(*this, Dims{static_cast<int64_t>(ndim()) - 1}).dot(whole_axes(w, Dims{static_cast<int64_t>(inner)}), dt);
  const DType out = least_upper_dtype(dtype(), w.dtype());
  const DType strong = strong_of(out), acc = dt.value_or(sum_dtype(strong));
  // x: [.., n, 1, k], w: [.., 1, m, k]
  Tensor x = cast(acc), y = w.cast(acc);
  if (w.ndim() >= 2) {
    y = y.transpose(-1, -2);
    if (ndim() >= 2) y = y.unsqueeze(-3);
    x = x.unsqueeze(-2);
  }
  const Shape lead = broadcast_shapes("matmul", {&x.shape(), &y.shape()});
  if (x.shape().back() == 0) return (x * y).sum(-1, false, acc).cast(dt ? *dt : strong);
  const Tensor p = wrap(alu(Op::Mul, {broadcast_to(x.uop(), lead), broadcast_to(y.uop(), lead)}));
  return p.sum(-1, false, acc).cast(dt ? *dt : strong);
}

Tensor Tensor::einsum(std::string_view formula, std::span<const Tensor> operands, std::optional<DType> dt) {
  std::string text(formula);
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::vector<std::string> inputs = whit::split(text.substr(0, arrow), ',');
  WHIT_USER(inputs.size() == operands.size(), Value, "[einsum] '{}' names {} operands, {} are given", formula, inputs.size(), operands.size());
  // Ellipses become capital-free private letters, right aligned.
  size_t n_dots = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].find("...") == std::string::npos) continue;
    WHIT_USER(operands[k].ndim() + 3 >= inputs[k].size(), Value, "[einsum] operand {} of shape {} has too few axes for '{}'", k, operands[k].shape(),
              inputs[k]);
    n_dots = std::max(n_dots, operands[k].ndim() + 3 - inputs[k].size());
  }
  auto spread_dots = [&](std::string s, size_t n) {
    const size_t at = s.find("...");
    if (at == std::string::npos) return s;
    std::string names;
    for (size_t i = n_dots - n; i < n_dots; ++i) names += static_cast<char>(1 + i);
    return s.substr(0, at) + names + s.substr(at + 3);
  };
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool dots = inputs[k].find("...") != std::string::npos;
    inputs[k] = spread_dots(inputs[k], dots ? operands[k].ndim() + 3 - inputs[k].size() : 0);
    WHIT_USER(inputs[k].size() == operands[k].ndim(), Value, "[einsum] operand {} of shape {} against {} letters in '{}'", k, operands[k].shape(),
              inputs[k].size(), formula);
  }
  std::string output;
  if (arrow != std::string::npos) {
    output = spread_dots(text.substr(arrow + 2), n_dots);
  } else {
    std::map<char, int> seen;
    for (const std::string& s : inputs)
      for (const char c : s) ++seen[c];
    for (const auto& [c, n] : seen)
      if (n == 1 || c < 32) output += c;
  }
  // Repeated letters of an operand are its diagonal.
  std::vector<Tensor> xs;
  std::map<char, int64_t> size_of;
  for (size_t k = 0; k < inputs.size(); ++k) {
    Tensor x = operands[k];
    std::string& letters = inputs[k];
    for (size_t i = 0; i < letters.size(); ++i) {
      for (size_t j = i + 1; j < letters.size();) {
        if (letters[j] != letters[i]) {
          ++j;
          continue;
        }
        WHIT_USER(x.shape()[i] == x.shape()[j], Runtime, "[einsum] '{}' has sizes {} and {}", letters[i], x.shape()[i], x.shape()[j]);
        x = x.diagonal(0, static_cast<int64_t>(i), static_cast<int64_t>(j));  // the diagonal is the last axis
        x = x.permute(moved_axis(x.ndim(), x.ndim() - 1, i));
        letters.erase(j, 1);
      }
    }
    for (size_t i = 0; i < letters.size(); ++i) {
      auto [it, fresh] = size_of.emplace(letters[i], x.shape()[i]);
      if (!fresh && it->second == 1) it->second = x.shape()[i];
      WHIT_USER(x.shape()[i] == it->second || x.shape()[i] == 1, Runtime, "[einsum] '{}' has sizes {} and {}", letters[i], it->second, x.shape()[i]);
    }
    xs.push_back(x);
  }
  std::string all;
  for (const char c : output) {
    WHIT_USER(size_of.count(c), Value, "[einsum] '{}' of the result is in no operand of '{}'", c, formula);
    WHIT_USER(all.find(c) == std::string::npos, Value, "[einsum] '{}' is twice in the result of '{}'", c, formula);
    all += c;
  }
  for (const auto& [c, n] : size_of)
    if (all.find(c) == std::string::npos) all += c;
  Tensor product;
  for (size_t k = 0; k < xs.size(); ++k) {
    Dims order, dims;
    for (const char c : all) {
      const size_t at = inputs[k].find(c);
      if (at != std::string::npos) order.push_back(static_cast<int64_t>(at));
      dims.push_back(at == std::string::npos ? 1 : xs[k].shape()[at]);
    }
    const Tensor x = xs[k].permute(order).reshape(dims);
    product = product.defined() ? product * x : x;
  }
  Dims sum_axes, full;
  for (size_t i = 0; i < all.size(); ++i) {
    full.push_back(size_of[all[i]]);
    if (i >= output.size()) sum_axes.push_back(static_cast<int64_t>(i));
  }
  product = product.expand(full);
  return sum_axes.empty() ? (dt ? product.cast(*dt) : product) : product.sum(IntList(sum_axes), false, dt).cast(dt.value_or(product.dtype()));
}

}  // namespace whit
