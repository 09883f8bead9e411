// State: random programs of views, assignments, set, lazy values and realize, against plain arrays that do everything
// at once. Reading a tensor must show what the order of the program says, whenever it is read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "base/flags.h"
#include "fuzz_run.h"
#include "runtime/counters.h"
#include "whit/tensor.h"

using namespace whit;

namespace {

using Ints = std::vector<int32_t>;

// What a tensor means: elements of shared memory (a view), or values of its own.
struct Model {
  std::shared_ptr<Ints> memory;
  std::vector<size_t> at;  // row-major: where each element lies
  Dims shape;

  size_t numel() const { return at.size(); }
  int32_t operator[](size_t i) const { return (*memory)[at[i]]; }
  Ints values() const {
    Ints v;
    for (const size_t i : at) v.push_back((*memory)[i]);
    return v;
  }
  static Model of(Ints values, const Dims& shape) {
    Model m{std::make_shared<Ints>(std::move(values)), {}, shape};
    m.at.resize(m.memory->size());
    std::iota(m.at.begin(), m.at.end(), size_t{0});
    return m;
  }
};

struct Entry {
  Tensor tensor;
  Model model;
  bool has_storage;  // may be assigned to
};

int32_t wrap(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(v))); }

class Program {
 public:
  explicit Program(uint64_t seed) : rng_(seed) {}

  // "" or what went wrong, with the program so far.
  std::string run(int n_steps) {
    for (int i = 0; i < 2; ++i) make_input();
    for (int i = 0; i < n_steps; ++i) {
      std::string wrong;
      try {
        wrong = step();
      } catch (const std::exception& e) {
        wrong = e.what();
      }
      if (!wrong.empty()) return log_ + "-> " + wrong;
    }
    for (size_t i = 0; i < live_.size(); ++i)
      if (std::string wrong = check(i); !wrong.empty()) return log_ + "-> at the end " + wrong;
    return "";
  }

 private:
  int64_t pick(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1)); }
  size_t any() { return static_cast<size_t>(pick(0, static_cast<int64_t>(live_.size()) - 1)); }
  template <class... A> void note(fmt::format_string<A...> f, A&&... a) { log_ += fmt::format(f, std::forward<A>(a)...) + "\n"; }
  std::string where(size_t i) const { return fmt::format("t{}", names_[i]); }

  size_t add(Tensor t, Model m, bool has_storage) {
    if (live_.size() > 14) drop(any());
    live_.push_back({std::move(t), std::move(m), has_storage});
    names_.push_back(next_++);
    return live_.size() - 1;
  }
  void drop(size_t i) {
    note("del {}", where(i));
    live_.erase(live_.begin() + static_cast<int64_t>(i));
    names_.erase(names_.begin() + static_cast<int64_t>(i));
  }

  void make_input() {
    static const std::vector<Dims> kShapes = {{6}, {2, 3}, {3, 4}, {4, 4}, {2, 2, 3}};
    const Dims shape = kShapes[static_cast<size_t>(pick(0, 4))];
    Ints v(static_cast<size_t>(Shape(shape).numel()));
    for (int32_t& x : v) x = static_cast<int32_t>(pick(-9, 9));
    const size_t i = add(Tensor::from(v, IntList(shape)), Model::of(v, shape), true);
    note("{} = tensor {} {}", where(i), Shape(shape).str(), fmt::join(v, " "));
  }

  // A movement op, applied to tensor and model alike.
  void make_view() {
    const size_t i = any();
    const Entry e = live_[i];
    const Dims& s = e.model.shape;
    if (s.empty()) return;
    Tensor t;
    Model m = e.model;
    std::string text;
    auto gather = [&](const Dims& shape, auto&& source) {  // source(position in the result) gives the position in e
      m.shape = shape;
      m.at.clear();
      Dims p(shape.size(), 0);
      for (int64_t n = Shape(shape).numel(); n > 0; --n) {
        const Dims q = source(p);
        int64_t flat = 0;
        for (size_t a = 0; a < s.size(); ++a) flat = flat * s[a] + q[a];
        m.at.push_back(e.model.at[static_cast<size_t>(flat)]);
        for (size_t a = shape.size(); a-- > 0;) {
          if (++p[a] < shape[a]) break;
          p[a] = 0;
        }
      }
    };
    switch (pick(0, 4)) {
      case 0: {  // reshape to one axis, or one axis split
        Dims d{Shape(s).numel()};
        if (pick(0, 1) && d[0] % 2 == 0) d = Dims{2, d[0] / 2};
        t = e.tensor.reshape(d);
        m.shape = d;
        text = "reshape " + Shape(d).str();
        break;
      }
      case 1: {
        std::vector<int64_t> order(s.size());
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), rng_);
        Dims d;
        for (const int64_t a : order) d.push_back(s[static_cast<size_t>(a)]);
        t = e.tensor.permute(order);
        gather(d, [&](const Dims& p) {
          Dims q(s.size(), 0);
          for (size_t a = 0; a < order.size(); ++a) q[static_cast<size_t>(order[a])] = p[a];
          return q;
        });
        text = "permute " + Shape(std::span<const int64_t>(order)).str();
        break;
      }
      case 2: {
        const int64_t axis = pick(0, static_cast<int64_t>(s.size()) - 1);
        t = e.tensor.flip(axis);
        gather(s, [&](Dims p) {
          int64_t& x = p[static_cast<size_t>(axis)];
          x = s[static_cast<size_t>(axis)] - 1 - x;
          return p;
        });
        text = fmt::format("flip {}", axis);
        break;
      }
      case 3: {  // a slice of the first axis
        const int64_t lo = pick(0, s[0] - 1), hi = pick(lo + 1, s[0]);
        t = e.tensor[Slice{lo, hi}];
        Dims d = s;
        d[0] = hi - lo;
        gather(d, [&](Dims p) { return p[0] += lo, p; });
        text = fmt::format("[{}:{}]", lo, hi);
        break;
      }
      default: {  // one row
        const int64_t row = pick(0, s[0] - 1);
        t = e.tensor[row];
        gather(Dims(std::span(s.begin() + 1, s.size() - 1)), [&](const Dims& p) {
          Dims q{row};
          q.append(p.begin(), p.end());
          return q;
        });
        text = fmt::format("[{}]", row);
      }
    }
    const size_t k = add(t, m, e.has_storage);
    note("{} = {} {}", where(k), names_of(e), text);
  }
  std::string names_of(const Entry& e) const {
    for (size_t i = 0; i < live_.size(); ++i)
      if (live_[i].tensor.is_same(e.tensor)) return where(i);
    return "(gone)";
  }

  // A value of a shape, computed lazily from what there is; its model is a snapshot.
  std::pair<Tensor, Ints> lazy_value(const Dims& shape, std::string& text) {
    const size_t n = static_cast<size_t>(Shape(shape).numel());
    std::vector<size_t> same;
    for (size_t i = 0; i < live_.size(); ++i)
      if (live_[i].model.numel() == n) same.push_back(i);
    if (same.empty() || pick(0, 5) == 0) {
      const int32_t c = static_cast<int32_t>(pick(-5, 5));
      text = std::to_string(c);
      return {Tensor::full(IntList(shape), Tensor::constant_int(c, DType::Int32), {.dtype = DType::Int32}), Ints(n, c)};
    }
    auto one = [&] { return same[static_cast<size_t>(pick(0, static_cast<int64_t>(same.size()) - 1))]; };
    const size_t a = one(), b = one();
    const Tensor x = live_[a].tensor.reshape(IntList(shape)), y = live_[b].tensor.reshape(IntList(shape));
    const Ints u = live_[a].model.values(), v = live_[b].model.values();
    Ints out(n);
    switch (pick(0, 3)) {
      case 0:
        for (size_t i = 0; i < n; ++i) out[i] = wrap(int64_t{u[i]} + v[i]);
        text = where(a) + " + " + where(b);
        return {x + y, out};
      case 1:
        for (size_t i = 0; i < n; ++i) out[i] = wrap(int64_t{u[i]} * v[i]);
        text = where(a) + " * " + where(b);
        return {x * y, out};
      case 2:
        for (size_t i = 0; i < n; ++i) out[i] = u[i] < v[i] ? wrap(int64_t{u[i]} + 1) : v[i];
        text = fmt::format("({0} < {1}).where({0} + 1, {1})", where(a), where(b));
        return {(x < y).where(x + 1, y), out};
      default: text = where(a); return {x, u};
    }
  }

  std::string step() {
    switch (pick(0, 12)) {
      case 0:
        if (pick(0, 2) == 0) make_input();
        return "";
      case 1:
      case 2:
      case 3: make_view(); return "";
      case 4: {  // a lazy value
        const Dims shape = live_[any()].model.shape;
        std::string text;
        auto [t, v] = lazy_value(shape, text);
        if (text.find(' ') == std::string::npos) return "";  // a view or a constant: other cases make them
        const size_t i = add(t, Model::of(v, shape), false);
        note("{} = {}", where(i), text);
        return "";
      }
      case 5: {  // a sum
        const size_t i = any();
        const Entry e = live_[i];
        if (e.model.shape.empty()) return "";
        int64_t total = 0;
        for (const int32_t v : e.model.values()) total += v;
        const std::string from = where(i);
        const size_t k = add(e.tensor.sum(), Model::of({wrap(total)}, {}), false);
        note("{} = {}.sum()", where(k), from);
        return "";
      }
      case 6:
      case 7:
      case 8: {  // assign
        const size_t i = any();
        if (!live_[i].has_storage) return "";
        std::string text;
        const auto [t, v] = lazy_value(live_[i].model.shape, text);
        note("{}.assign({})", where(i), text);
        live_[i].tensor.assign(t);
        const Model& m = live_[i].model;
        for (size_t k = 0; k < v.size(); ++k) (*m.memory)[m.at[k]] = v[k];
        return "";
      }
      case 9: {  // set of rows
        const size_t i = any();
        const Model& m = live_[i].model;
        if (!live_[i].has_storage || m.shape.empty()) return "";
        const int64_t lo = pick(0, m.shape[0] - 1), hi = pick(lo + 1, m.shape[0]);
        Dims d = m.shape;
        d[0] = hi - lo;
        std::string text;
        const auto [t, v] = lazy_value(d, text);
        note("{}[{}:{}] = {}", where(i), lo, hi, text);
        live_[i].tensor.set({Slice{lo, hi}}, t);
        const size_t row = m.numel() / static_cast<size_t>(m.shape[0]);
        for (size_t k = 0; k < v.size(); ++k) (*m.memory)[m.at[static_cast<size_t>(lo) * row + k]] = v[k];
        return "";
      }
      case 10: {  // realize some
        std::vector<Tensor> some;
        std::string text;
        for (int64_t n = pick(1, 3); n > 0; --n) {
          const size_t i = any();
          some.push_back(live_[i].tensor);
          text += " " + where(i);
        }
        note("realize{}", text);
        Tensor::realize_all(some);
        return "";
      }
      case 11:
        if (live_.size() > 3) drop(any());
        return "";
      default: return check(any());
    }
  }

  std::string check(size_t i) {
    note("read {}", where(i));
    const Ints got = live_[i].tensor.to_vector<int32_t>(), want = live_[i].model.values();
    if (got == want) return "";
    return fmt::format("{} is {} instead of {}", where(i), fmt::join(got, " "), fmt::join(want, " "));
  }

  std::mt19937_64 rng_;
  std::vector<Entry> live_;
  std::vector<int> names_;
  int next_ = 0;
  std::string log_;
};

// Shortens a failing program by trying fewer steps of the same seed.
std::string shortest(uint64_t seed, int n_steps) {
  for (int n = 1; n < n_steps; ++n)
    if (std::string w = Program(seed).run(n); !w.empty()) return w;
  return Program(seed).run(n_steps);
}

TEST(FuzzState, ProgramOrderIsTheTruth) {
  int64_t n = 0;
  for (test::FuzzRun run(20, 200); run.next(); n = run.n()) {
    const uint64_t seed = run.seed();
    const int n_steps = 10 + static_cast<int>(seed % 50);
    if (!Program(seed).run(n_steps).empty()) {
      FAIL() << "seed " << seed << ", " << n_steps << " steps; shortest program:\n" << shortest(seed, n_steps);
    }
  }
  printf("%lld programs\n", static_cast<long long>(n));
}

TEST(FuzzState, MemoryReturnsToTheStart) {
  const int64_t before = counters().mem_used.load();
  for (uint64_t seed = 1000; seed < 1010; ++seed) ASSERT_EQ(Program(seed).run(40), "");
  EXPECT_EQ(counters().mem_used.load(), before);
}

}  // namespace
