// Lists: made of another one, and put in order.
#pragma once
#include <algorithm>
#include <functional>
#include <ranges>
#include <vector>

namespace whit {

/// f(x), or the member f of x, of each x of a range.
template <std::ranges::input_range R, class F> auto mapped(R&& range, F f) {
  std::vector<std::decay_t<std::invoke_result_t<F&, std::ranges::range_reference_t<R>>>> out;
  for (auto&& x : range) out.push_back(std::invoke(f, x));
  return out;
}

template <class T> void sort_unique(std::vector<T>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

}  // namespace whit
