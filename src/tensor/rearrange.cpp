// rearrange: einops formulas.
#include <algorithm>
#include <cctype>
#include <map>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

// Names inside one axis.
struct Group {
  std::vector<std::string> names;
  bool joined = false;  // in parentheses
};

// `rest`: the names that "..." stands for.
std::vector<Group> parse_side(std::string_view text, const std::vector<std::string>& rest) {
  std::vector<Group> out;
  bool inside = false;
  size_t i = 0;
  auto add = [&](std::string name) {
    if (!inside) out.emplace_back();
    out.back().names.push_back(std::move(name));
  };
  while (i < text.size()) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (c == '(') {
      WHIT_USER(!inside, Assertion, "[rearrange] nested parentheses in '{}'", text);
      inside = true;
      out.push_back({{}, true});
      ++i;
    } else if (c == ')') {
      WHIT_USER(inside, Assertion, "[rearrange] unbalanced parentheses in '{}'", text);
      inside = false;
      ++i;
    } else if (text.substr(i, 3) == "..." || text.substr(i, 3) == "\u2026") {
      for (const std::string& name : rest) add(name);
      i += 3;
    } else {
      const size_t from = i;
      while (i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_')) ++i;
      WHIT_USER(i > from, Assertion, "[rearrange] unexpected '{}' in '{}'", c, text);
      add(std::string(text.substr(from, i - from)));
    }
  }
  WHIT_USER(!inside, Assertion, "[rearrange] unbalanced parentheses in '{}'", text);
  return out;
}

}  // namespace

Tensor Tensor::rearrange(std::string_view formula, std::span<const std::pair<std::string, int64_t>> sizes) const {
  const size_t arrow = formula.find("->");
  WHIT_USER(arrow != std::string_view::npos && formula.find("->", arrow + 2) == std::string_view::npos, Assertion,
            "[rearrange] '{}' needs exactly one '->'", formula);
  std::vector<std::string> rest{"..."};
  std::vector<Group> left = parse_side(formula.substr(0, arrow), rest), right = parse_side(formula.substr(arrow + 2), rest);
  size_t n_dots = 0;
  for (const Group& g : left) n_dots += static_cast<size_t>(std::ranges::count(g.names, "..."));
  WHIT_USER(n_dots <= 1, Assertion, "[rearrange] more than one ellipsis in '{}'", formula);
  WHIT_USER(n_dots ? left.size() - 1 <= ndim() : left.size() == ndim(), Assertion, "[rearrange] '{}' has {} axes on the left, shape {} has {}",
            formula, left.size() - n_dots, shape(), ndim());
  if (n_dots) {
    for (const Group& g : left)
      WHIT_USER(!g.joined || std::ranges::find(g.names, "...") == g.names.end(), Assertion,
                "[rearrange] an ellipsis inside parentheses on the left of '{}'", formula);
    rest.clear();
    for (size_t k = 0; k + left.size() < ndim() + 1; ++k) rest.push_back(fmt::format(".{}", k));  // names that no formula can hold
    left = parse_side(formula.substr(0, arrow), rest);
    right = parse_side(formula.substr(arrow + 2), rest);
  }
  std::map<std::string, int64_t> given(sizes.begin(), sizes.end());
  std::vector<std::string> order;  // the names of the left, with their sizes
  Dims split_dims;
  const auto place = [&](const std::string& name) { return static_cast<size_t>(std::ranges::find(order, name) - order.begin()); };
  for (size_t axis = 0; axis < left.size(); ++axis) {
    int64_t known = 1;
    std::optional<size_t> open;
    for (const std::string& name : left[axis].names) {
      if (name == "1") continue;
      WHIT_USER(place(name) == order.size(), Assertion, "[rearrange] '{}' is twice on the left of '{}'", name, formula);
      const auto it = given.find(name);
      WHIT_USER(it != given.end() || !open, Assertion, "[rearrange] the sizes of '{}' and '{}' are both unknown", open ? order[*open] : name, name);
      if (it == given.end()) open = order.size();
      order.push_back(name);
      split_dims.push_back(it == given.end() ? 1 : it->second);
      known *= split_dims.back();
    }
    const int64_t n = shape()[axis];
    if (open) {
      WHIT_USER(known > 0 && n % known == 0, Assertion, "[rearrange] axis {} of size {} does not divide by {}", axis, n, known);
      split_dims[*open] = n / known;
    } else {
      WHIT_USER(known == n, Assertion, "[rearrange] axis {} has size {}, the formula says {}", axis, n, known);
    }
  }
  for (const auto& [name, n] : given)
    WHIT_USER(place(name) < order.size(), Assertion, "[rearrange] a size is given for '{}', which is not in '{}'", name, formula);
  Dims perm, out;
  for (const Group& g : right) {
    out.push_back(1);
    for (const std::string& name : g.names) {
      if (name == "1") continue;
      const size_t at = place(name);
      WHIT_USER(at < order.size(), Assertion, "[rearrange] '{}' is not on the left of '{}'", name, formula);
      WHIT_USER(!std::ranges::count(perm, static_cast<int64_t>(at)), Assertion, "[rearrange] '{}' is twice on the right of '{}'", name, formula);
      perm.push_back(static_cast<int64_t>(at));
      out.back() *= split_dims[at];
    }
  }
  WHIT_USER(perm.size() == order.size(), Assertion, "[rearrange] names of the left are missing on the right of '{}'", formula);
  return reshape(split_dims).permute(perm).reshape(out);
}

}  // namespace whit
