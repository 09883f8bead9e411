// rearrange: einops formulas.
#include <algorithm>
#include <cctype>
#include <map>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

// Names inside one axis; "..." stands for all the rest.
struct Group {
  std::vector<std::string> names;
  bool joined = false;  // in parentheses
};

std::vector<Group> parse_side(std::string_view text) {
  std::vector<Group> out;
  bool inside = false;
  size_t i = 0;
  auto add = [&](std::string name) {
    if (inside) {
      out.back().names.push_back(std::move(name));
    } else {
      out.push_back({{std::move(name)}, false});
    }
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
      add("...");
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
  std::vector<Group> left = parse_side(formula.substr(0, arrow)), right = parse_side(formula.substr(arrow + 2));
  size_t n_dots = 0;
  for (const Group& g : left)
    for (const std::string& name : g.names) n_dots += name == "...";
  WHIT_USER(n_dots <= 1, Assertion, "[rearrange] more than one ellipsis in '{}'", formula);
  WHIT_USER(n_dots ? left.size() - 1 <= ndim() : left.size() == ndim(), Assertion, "[rearrange] '{}' has {} axes on the left, shape {} has {}",
            formula, left.size() - n_dots, shape(), ndim());
  const size_t n_rest = ndim() + n_dots - left.size();
  // The ellipsis becomes names that no formula can hold.
  auto spread_dots = [&](std::vector<Group>& side) {
    std::vector<Group> out;
    for (Group& g : side) {
      if (!g.joined && g.names[0] == "...") {
        for (size_t k = 0; k < n_rest; ++k) out.push_back({{fmt::format(".{}", k)}, false});
        continue;
      }
      std::vector<std::string> names;
      for (std::string& name : g.names) {
        if (name != "...") {
          names.push_back(std::move(name));
        } else {
          for (size_t k = 0; k < n_rest; ++k) names.push_back(fmt::format(".{}", k));
        }
      }
      out.push_back({std::move(names), g.joined});
    }
    side = std::move(out);
  };
  if (n_dots) {
    for (const Group& g : left)
      WHIT_USER(!g.joined || std::ranges::find(g.names, "...") == g.names.end(), Assertion,
                "[rearrange] an ellipsis inside parentheses on the left of '{}'", formula);
    spread_dots(left);
    spread_dots(right);
  }
  std::map<std::string, int64_t> given(sizes.begin(), sizes.end());
  std::vector<std::string> order;
  std::map<std::string, size_t> place;
  std::map<std::string, int64_t> size_of;
  Dims split_dims;
  for (size_t axis = 0; axis < left.size(); ++axis) {
    int64_t known = 1;
    const std::string* open = nullptr;
    for (const std::string& name : left[axis].names) {
      if (name == "1") continue;
      WHIT_USER(!place.count(name), Assertion, "[rearrange] '{}' is twice on the left of '{}'", name, formula);
      place[name] = order.size();
      order.push_back(name);
      if (const auto it = given.find(name); it != given.end()) {
        size_of[name] = it->second;
        known *= it->second;
      } else {
        WHIT_USER(!open, Assertion, "[rearrange] the sizes of '{}' and '{}' are both unknown", open ? *open : name, name);
        open = &name;
      }
    }
    const int64_t n = shape()[axis];
    if (open) {
      WHIT_USER(known > 0 && n % known == 0, Assertion, "[rearrange] axis {} of size {} does not divide by {}", axis, n, known);
      size_of[*open] = n / known;
    } else {
      WHIT_USER(known == n, Assertion, "[rearrange] axis {} has size {}, the formula says {}", axis, n, known);
    }
  }
  for (const std::string& name : order) split_dims.push_back(size_of[name]);
  for (const auto& [name, n] : given)
    WHIT_USER(place.count(name), Assertion, "[rearrange] a size is given for '{}', which is not in '{}'", name, formula);
  Dims perm, out;
  std::map<std::string, bool> used;
  for (const Group& g : right) {
    int64_t n = 1;
    for (const std::string& name : g.names) {
      if (name == "1") continue;
      WHIT_USER(place.count(name), Assertion, "[rearrange] '{}' is not on the left of '{}'", name, formula);
      WHIT_USER(!used[name], Assertion, "[rearrange] '{}' is twice on the right of '{}'", name, formula);
      used[name] = true;
      perm.push_back(static_cast<int64_t>(place[name]));
      n *= size_of[name];
    }
    out.push_back(n);
  }
  WHIT_USER(perm.size() == order.size(), Assertion, "[rearrange] names of the left are missing on the right of '{}'", formula);
  return reshape(split_dims).permute(perm).reshape(out);
}

}  // namespace whit
