// How it works. The product's factors are a vector operand, whose lane axis becomes vectors, and a broadcast operand,
// whose elements are spread over the lanes. A register tile of `rows` x `vectors` accumulators takes a vector of the one
// and an element of the other for each term. A model of the inner loop (two multiply-adds, two loads, one broadcast a
// cycle) chooses axes and tile; packing, staging and stores are added to it.
//
// Loops from outside to inside:
//   GLOBAL                     batch and row axes; or chunks of panels, when the packed operand is too big for the cache
//   [outer part of the sum]    when even a chunk is too big: accumulators rest in the output in between
//   rows, panels               a block of rows meets all panels of the chunk
//   sum                        in order, innermost unrolled when short
// The vector operand is packed into panels where memory does not have it in that order, or where its stride would visit
// a page for each term. The broadcast operand is staged when it has gates (padding) or arithmetic of its own.
//
// Requirements: (1) the order of each sum is the row-major order of its ranges, one chain, but where the sizes alone say
// otherwise (dots, chains); (2) lanes beyond the end of the axis read nothing and store nothing; (3) at most four copies of
// the inner loop.
#include "codegen/contract.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "codegen/blocks.h"
#include "codegen/operand.h"
#include "codegen/vectorize.h"

namespace whit::codegen {
namespace {

constexpr int64_t kShortSum = 16;  // terms of what may be computed beside a product, from its range too: their sums are one chain
constexpr double kNsPerCycle = 0.33;
constexpr double kMostScratch = 32 << 20;  // bytes
constexpr size_t kMostPlans = 24;          // for a search
constexpr double kMostCopied = 24;         // rows

int64_t size_of(const UOp& r) { return range_size(r.node()); }
struct Contraction {
  UOp sum;  // the REDUCE
  Operand x[2];
  std::vector<UOp> summed, own[2], batch;  // own: output axes of one factor alone; batch: the others
  DType dtype;                             // of the factors as they are multiplied
  int64_t n_bytes = 4;
  UOp factor[2], terms, groups;  // of one whose factors are packed: what they pack, its range, and that of the packed ones
};

// Recognises the nest's sum of products: the REDUCE with the most terms. Others may stand beside it when they are short:
// they are unrolled into the epilogue.
bool recognise(const Nest& nest, Contraction& c) {
  double most = 0;
  std::vector<UOp> sums;
  for (const Node* n : toposort(nest.ends)) {
    if (n->op == Op::Stage) return false;
    if (n->op != Op::Reduce) continue;
    sums.emplace_back(n);
    const double terms = executions(n) * product(closed_ranges(n));
    if (terms > most) c.sum = UOp(n);
    most = std::max(most, terms);
  }
  for (const UOp& s : sums) {
    if (s == c.sum) continue;
    if (product(closed_ranges(s.node())) > kShortSum) return false;
    for (const Node* n : toposort(std::vector<UOp>{s, c.sum.src(0)}))
      if (n == c.sum.node() || (n->op == Op::Reduce && n != s.node())) return false;
    for (const Node* n : toposort(c.sum.src(0)))
      if (n->op == Op::Reduce) return false;
  }
  if (!c.sum || c.sum.arg().at(0).as_str() != "add") return false;
  if (c.sum.dtype() != DType::Float32 && c.sum.dtype() != DType::Float64 && c.sum.dtype() != DType::Int32) return false;
  c.dtype = c.sum.dtype();
  c.n_bytes = whit::n_bytes(c.sum.dtype());
  UOp body = c.sum.src(0);
  std::vector<UOp> conditions;
  while (body.op() == Op::Where && body.src(2).is_const() && !body.src(2).arg().is_invalid() && body.src(2).arg().to_double() == 0) {
    for (const UOp& g : conjuncts(body.src(0))) conditions.push_back(g);
    body = body.src(1);
  }
  if (body.op() != Op::Mul) return false;
  UOp factor[2] = {body.src(0), body.src(1)};
  for (const UOp& g : conditions) {
    // A condition goes to the factor that has it already, or has its ranges.
    size_t to = 0;
    for (size_t i = 0; i < 2; ++i) {
      bool all = true;
      for (const Node* r : g.ranges()) all = all && factor[i].depends_on(UOp(r));
      if (all) to = i;
      if (all && zero_unless(g, factor[i]) == factor[i]) break;
    }
    factor[to] = zero_unless(g, factor[to]);
  }
  for (size_t i = 0; i < 2; ++i) c.x[i] = Operand::of(factor[i]);
  c.summed = closed_ranges(c.sum.node());
  for (const UOp& k : c.summed)
    if (axis_type(k.node()) != AxisType::Reduce) return false;
  const auto outputs = closed_ranges(nest.ends[0].node());
  for (const UOp& e : nest.ends)
    if (closed_ranges(e.node()) != outputs) return false;
  for (const UOp& r : nest.order) {
    if (!contains(outputs, r)) continue;
    if (axis_type(r.node()) != AxisType::Weak) return false;
    const bool a = c.x[0].depends_on(r), b = c.x[1].depends_on(r);
    if (a && !b) c.own[0].push_back(r);
    else if (b && !a) c.own[1].push_back(r);
    else c.batch.push_back(r);
  }
  return true;
}

// One instruction multiplies and adds pairs of bfloat16, in the order of the sum, and one fours of bytes, of which the vector
// operand's are unsigned. The factors become 32 bits of such a group, and the innermost range counts groups.
bool pack_factors(Contraction& c, const Target& t) {
  const bool bytes = c.dtype == DType::Int32;
  const int64_t n = bytes ? 4 : 2;
  if (!(bytes ? t.dots_bytes : t.dots_bfloat16 && c.dtype == DType::Float32) || t.renderer != "llvm") return false;
  size_t place = c.summed.size() - 1;
  while (place > 0 && size_of(c.summed[place]) < 4 * n) --place;
  const UOp k = c.summed[place];
  if (k.n_src() > 0 || size_of(k) < 4 * n) return false;
  for (size_t i = 0; i < 2; ++i) {
    UOp& x = c.factor[i] = c.x[i].value;
    do {  // int16 and more hold any byte
      if (x.op() != Op::Cast) return false;
      x = x.src(0);
    } while (bytes && is_int(x.dtype()) && !is_unsigned(x.dtype()) && n_bytes(x.dtype()) > 1);
    const DType dt = x.dtype();
    if (dt == DType::UInt8 && c.summed.size() > 1) return false;  // a cut sum is nothing but a sum
    if (bytes ? dt != DType::Int8 && dt != DType::UInt8 : dt != DType::BFloat16) return false;
    if (size_of(k) % n == 0) continue;
    if (!Operand::of(c.factor[i]).is_plain) return false;
    c.factor[i] = zero_unless(lt(k, size_of(k)), c.factor[i]);
  }
  c.terms = k;
  c.groups = c.summed[place] = fresh_range(ceil_div(size_of(k), n), AxisType::Reduce);
  for (size_t i = 0; i < 2; ++i) c.x[i] = Operand::of(pack_terms(c.factor[i], k, c.groups, n));
  c.dtype = DType::UInt32;
  return true;
}

// Cycles of the inner loop for one term of a tile: multiply-adds, loads, the latency of a chain, vectors that come from
// the second cache; and the loop itself.
double tile_cycles(double rows, double vectors) {
  return std::max({rows * vectors / 2, rows + vectors / 2, std::min(rows * vectors, 4.0), 2 * vectors}) + 0.5;
}

// Cycles a term and lane-vector for `n` rows cut into tiles.
double rows_cycles(int64_t n, int64_t tile, double vectors) {
  const double full = static_cast<double>(n / tile) * tile_cycles(static_cast<double>(tile), vectors);
  const int64_t rest = n % tile;
  return (full + (rest ? 1.03 * tile_cycles(static_cast<double>(rest), vectors) : 0)) / static_cast<double>(n);
}

// The tiles for a lane axis, the best one first. Rows run along the axis in which the operand lies closest, and maybe a
// second one.
std::vector<ContractPlan> tiles_of(const Contraction& c, const Target& t, const ContractPlan& p) {
  std::vector<UOp> rows = c.own[p.swapped ? 0 : 1];
  std::stable_sort(rows.begin(), rows.end(), [&](const UOp& a, const UOp& b) { return reach(c.sum.node(), a) < reach(c.sum.node(), b); });
  std::erase_if(rows, [](const UOp& r) { return r.n_src() > 0; });  // as far as another loop says
  if (p.across) rows = {p.across};
  const int64_t n = size_of(p.lane);
  const int64_t n_vectors = ceil_div(n, p.lanes);
  const double n_tiles = product(c.summed) * product(c.own[0]) * product(c.own[1]) * product(c.batch) / static_cast<double>(n);
  std::vector<ContractPlan> found;
  double best = 1e300;
  auto add = [&](double cycles, int64_t vectors, std::vector<ContractPlan::Row> tile) {
    ContractPlan& plan = found.emplace_back(p);
    plan.vectors = vectors;
    plan.rows = std::move(tile);
    plan.cycles = cycles * n_tiles;
    if (cycles >= best * 0.995) return;  // a bit better is not worth a bigger tile
    best = cycles;
    std::swap(found.front(), plan);
  };
  // Of packed terms the widest first: it reads the other operand least often. One of floats leaves registers to what follows the sum.
  const int64_t n_widths = std::min<int64_t>(rows.empty() ? 8 : 4, n_vectors);
  for (int64_t i = 1; i <= n_widths; ++i) {
    const int64_t v = p.pack && c.terms ? n_widths + 1 - i : i;
    const int64_t most = std::min<int64_t>(16, (t.n_vector_registers - 2 - v) / v);
    // Panels of v vectors, and one narrower panel for the rest.
    const double panels = static_cast<double>(n_vectors / v), rest = static_cast<double>(n_vectors % v);
    auto cost = [&](int64_t size, int64_t tile, int64_t other) {
      double cycles = panels * rows_cycles(size * other, tile * other, static_cast<double>(v));
      if (rest > 0) cycles += 1.03 * rows_cycles(size * other, tile * other, rest);
      return cycles;
    };
    for (const UOp& r : rows) {
      if (r != rows[0] && size_of(rows[0]) >= 4) break;
      for (int64_t tile = 1; tile <= std::min(most, size_of(r)); ++tile) {
        if (p.across && (tile % kSquare != 0 || p.lanes % tile != 0)) continue;
        add(cost(size_of(r), tile, 1), v, {{r, tile}});
        if (tile != size_of(r)) continue;
        for (const UOp& q : rows) {
          if (q == r) continue;
          for (int64_t more = 2; more * tile <= most && more <= size_of(q); ++more) {
            if (size_of(q) % more == 0) add(cost(tile, tile, more), v, {{r, tile}, {q, more}});
          }
        }
      }
    }
    if (rows.empty()) add(panels * tile_cycles(1, static_cast<double>(v)) + (rest > 0 ? tile_cycles(1, rest) : 0), v, {});
  }
  return found;
}

bool is_contiguous(const Operand& x, const UOp& axis) {
  const Stride s = x.stride(axis);
  return s.linear && s.value == 1;
}

// Cycles for an element that is packed across memory.
double copy_cycles(const Operand& x, const UOp& k) { return x.square_terms(k) ? 0.4 : 1.2; }

// Every lane axis of both factors is tried. The best plan comes first.
std::vector<ContractPlan> plans_of(const Nest& nest, const Contraction& c, const Target& t) {
  std::vector<ContractPlan> plans;
  double best = 1e300;
  const UOp st = nest.ends[0].src(0);
  const Affine out = affine_of(st.src(0).src(1));
  const auto across_of = [&](const std::vector<UOp>& rows) {
    std::vector<UOp> axes{UOp()};
    for (const UOp& r : rows)
      if (size_of(r) >= kSquare && r.n_src() == 0 && stride_of(out, r).value == 1) axes.push_back(r);
    return axes;
  };
  for (const bool swapped : {false, true}) {
    const Operand& x = c.x[swapped ? 1 : 0];
    for (const UOp& lane : c.own[swapped ? 1 : 0]) {
      if (size_of(lane) < 4 || lane.n_src() > 0) continue;
      ContractPlan p;
      p.swapped = swapped;
      p.lane = lane;
      p.lanes = std::max<int64_t>(2, t.vector_bytes / c.n_bytes);
      while (p.lanes / 2 >= size_of(lane)) p.lanes /= 2;
      const double reuse = product(c.own[swapped ? 0 : 1]);
      const bool contiguous = is_contiguous(x, lane) && !x.is_gated_by(std::vector<UOp>{lane});
      // Rows of the operand that lie far apart cost a page and a cache set each.
      int64_t far = 0;
      for (const UOp& k : c.summed) {
        const Stride s = x.stride(k);
        if (s.linear && size_of(k) > 16) far = std::max(far, std::abs(s.value) * c.n_bytes);
      }
      const double n_packed = product(c.summed) * product(c.own[swapped ? 1 : 0]) * product(c.batch);
      // A window would be packed once a tap.
      double span = 1;
      for (const auto* list : {&c.summed, &c.own[swapped ? 1 : 0], &c.batch})
        for (const UOp& r : *list) span += static_cast<double>(std::abs(x.stride(r).value) * (size_of(r) - 1));
      const bool is_window = x.is_plain && n_packed > 2 * span;
      p.must_pack = !contiguous || !x.is_plain || (x.load.dtype() != c.dtype && !is_window);
      p.pack = p.must_pack || (far >= 1024 && reuse >= 64 && !is_window);
      const double again = x.is_plain || (c.terms && !contiguous) ? 1 : 2;  // neighbours in memory are at most rotated
      p.pack_cycles = p.pack ? again * (contiguous ? 0.25 : copy_cycles(x, c.summed.back())) : 0;
      const Stride s = stride_of(out, lane);
      const double n_stored = product(c.own[0]) * product(c.own[1]) * product(c.batch);
      // Lanes that lie about a page apart in the output share few cache sets, those that lie whole pages apart one.
      const int64_t apart = s.linear ? s.value * c.n_bytes : 1;
      const double stored = s.linear && s.value == 1 ? 0.15 : s.linear && apart < 3072 ? 0.8 : apart % 4096 != 0 ? 4.0 : 20.0;
      // Of a long sum whose broadcast elements lie on a page each, every tile fetches all lines again.
      const Operand& y = c.x[swapped ? 0 : 1];
      const UOp& k = c.summed.back();
      const bool fetched = std::abs(y.stride(k).value) * c.n_bytes >= 1024 && size_of(k) * 64 > t.l2_bytes;
      const double fetches = fetched ? 0.8 * product(c.summed) * n_stored / static_cast<double>(p.lanes) : 0;
      for (const UOp& across : across_of(c.own[swapped ? 0 : 1])) {
        p.across = across;
        if (across && (stored < 0.4 || c.terms || p.lanes % kSquare != 0)) continue;
        std::vector<ContractPlan> more = tiles_of(c, t, p);
        if (more.empty()) continue;
        for (ContractPlan& plan : more) plan.cycles += n_packed * p.pack_cycles + n_stored * (across ? 0.4 : stored) + fetches;
        const bool wins = more.front().cycles < best;
        best = std::min(best, more.front().cycles);
        plans.insert(wins ? plans.begin() : plans.end(), more.begin(), more.end());
      }
    }
  }
  if (plans.empty()) return plans;
  std::stable_sort(plans.begin() + 1, plans.end(), [](const ContractPlan& a, const ContractPlan& b) { return a.cycles < b.cycles; });
  return plans;
}

// The schedule of one plan.
class Builder {
 public:
  Builder(const Nest& nest, const Contraction& c, const ContractPlan& p, const Target& t)
      : nest_(nest), c_(c), p_(p), target_(t), x_(c.x[p.swapped ? 1 : 0]), y_(c.x[p.swapped ? 0 : 1]) {
    if (!c.terms) return;
    const auto moved = [](const Operand& x) { return Operand::of(x.value ^ constant(DType::UInt32, int64_t{0x80808080})); };
    x_is_moved_ = c.factor[p.swapped ? 1 : 0].dtype() == DType::Int8;
    y_is_moved_ = c.factor[p.swapped ? 0 : 1].dtype() == DType::UInt8;
    if (x_is_moved_) x_ = moved(x_);
    if (y_is_moved_) y_ = moved(y_);
  }

  void run(std::vector<Nest>& out) {
    rows_ = c_.own[p_.swapped ? 0 : 1];
    vector_side_ = c_.own[p_.swapped ? 1 : 0];
    std::erase(vector_side_, p_.lane);
    const int64_t n = size_of(p_.lane), width = p_.vectors * p_.lanes;
    const int64_t n_panels = n / width, rest = n - n_panels * width;
    // What stays in cache while rows pass by; more than that is chunked, or the sum is cut.
    constexpr int64_t kParts[] = {2, 4, 1, 8};
    const int64_t budget = target_.l2_bytes / kParts[nest_.pick("cache", std::size(kParts))];
    const auto panel_bytes = static_cast<int64_t>(product(c_.summed)) * width * c_.n_bytes;
    chunked_ = p_.pack && panel_bytes * std::max<int64_t>(1, n_panels) > budget;
    output_is_read_ = reads_output(nest_);
    // Accumulators that rest in scratch memory while the sum is cut must not be a second output in size.
    const double rest_bytes = product(rows_) * product(c_.own[p_.swapped ? 1 : 0]) * static_cast<double>(c_.n_bytes);
    if (chunked_ && panel_bytes > budget && c_.summed.size() > 1 && c_.summed[0].n_src() == 0 && rest_bytes <= kMostScratch) {
      cut_ = true;
      chunked_ = false;
    }
    // The broadcast operand is read where it is, unless the inner loop would do more than load it.
    // Where each element meets several vectors, rotating it costs nothing.
    const bool is_rotated =
        c_.terms && p_.vectors > 2 && std::ranges::count_if(toposort(y_.value), [](const Node* m) { return m->op == Op::Load; }) == 1;
    stage_y_ = y_.is_gated_by(c_.summed) || (!is_rotated && (!y_.is_plain || y_.load.dtype() != c_.dtype));
    heavy_ = p_.across || is_heavy();
    tiles_a_strip_ = tiles_a_strip();
    // What few packed rows are and all iterations share is staged once.
    whole_y_ = c_.terms && stage_y_ && tiles_a_strip_ == 1 && rows_.size() == 1 && !p_.rows.empty() && row_blocks().size() == 1 &&
               4 * product(rows_) * product(c_.summed) <= static_cast<double>(target_.l2_bytes) / 3 &&
               std::ranges::none_of(c_.batch, [&](const UOp& r) { return y_.depends_on(r); }) && product(c_.batch) * product(vector_side_) > 1;

    std::vector<Segment> parts;
    if (n_panels > 0) parts.push_back({0, n_panels, p_.vectors, p_.lanes});
    if (rest > 0) parts.push_back({n_panels * width, 1, ceil_div(rest, p_.lanes), p_.lanes});
    Nest nest = empty();
    for (const Segment& s : parts) {
      panels_a_chunk_ = s.count;
      if (chunked_) panels_a_chunk_ = s.count == n_panels ? chunk_of(n_panels, panel_bytes, budget) : 1;
      if (chunked_ && !nest.ends.empty()) {
        finish(std::move(nest), out);
        nest = empty();
      }
      part(nest, s);
    }
    finish(std::move(nest), out);
  }

 private:
  Nest empty() {
    for (std::vector<UOp>* list : {&pre_, &cut_dims_, &after_, &mid_, &panels_, &inner_}) list->clear();
    loops_.clear();
    blocks_.clear();
    pack_is_open_ = false;
    Nest nest = nest_;
    nest.ends.clear();
    for (const UOp& r : nest_.order)
      if (axis_type(r.node()) == AxisType::Unroll) inner_.push_back(r);
    return nest;
  }

  int64_t chunk_of(int64_t n_panels, int64_t panel_bytes, int64_t budget) const {
    int64_t best = 1;
    const int64_t least = (tiles_a_strip_ > 1 ? 4 : 8) * target_.n_cores;  // strips are staged again for each
    for (int64_t d = 1; d <= n_panels; ++d)
      if (n_panels % d == 0 && d * panel_bytes <= budget && (n_panels / d >= least || d == 1)) best = d;
    return best;
  }

  const ContractPlan::Row* tile_row(const UOp& r) const {
    for (const ContractPlan::Row& row : p_.rows)
      if (row.axis == r) return &row;
    return nullptr;
  }

  // A loop over an output axis, the same one in all parts.
  UOp loop(const UOp& r, std::vector<UOp>& where_to) {
    const auto it = loops_.find(r.node());
    if (it != loops_.end()) return it->second;
    const UOp l = with_type(r, AxisType::Weak);
    loops_.emplace(r.node(), l);
    where_to.push_back(l);
    return l;
  }
  // The loop over `count` blocks of a row axis. Outside of a cut sum, some parts of the first such loop run in parallel.
  UOp block(const UOp& r, int64_t begin, int64_t count, std::vector<UOp>& open) {
    auto& made = blocks_[{r.node(), begin}];
    if (made.empty()) {
      int64_t parts = 1;
      if (cut_ && !cut_parts_ && count > 1 && row_blocks().size() == 1) {
        for (parts = std::min<int64_t>(target_.n_cores, count); count % parts != 0;) ++parts;
        cut_parts_ = true;
      }
      if (parts > 1) {
        made.push_back(fresh_range(parts, AxisType::Weak));
        pre_.push_back(made.back());
      }
      if (count > parts) {
        made.push_back(fresh_range(count / parts, AxisType::Weak));
        mid_.push_back(made.back());
      }
    }
    UOp at = idx(0);
    for (const UOp& l : made) {
      at = at * size_of(l) + l;
      open.push_back(l);
    }
    return at;
  }

  // One part of the lane axis: main panels, or the narrower rest.
  void part(Nest& nest, const Segment& s) {
    RangeMap map;
    std::vector<UOp> open;  // ranges of the END
    auto outer = [&](const UOp& r, std::vector<UOp>& where_to) {
      map[r.node()] = loop(r, where_to);
      open.push_back(map[r.node()]);
    };
    for (const UOp& r : c_.batch) outer(r, pre_);
    for (const UOp& r : vector_side_) outer(r, pre_);
    UOp chunk;
    if (s.count > panels_a_chunk_) {
      chunk = fresh_range(s.count / panels_a_chunk_, AxisType::Weak);
      pre_.push_back(chunk);
      open.push_back(chunk);
    }
    pack_is_open_ = p_.pack && !pre_.empty();
    for (const UOp& r : rows_)
      if (!tile_row(r)) outer(r, chunked_ || cut_ ? mid_ : pre_);

    const std::vector<UOp> summed(c_.summed.begin() + (cut_ ? 1 : 0), c_.summed.end());
    const int64_t width = s.unroll * s.lanes;
    const UOp u = fresh_range(s.unroll, AxisType::Upcast), l = fresh_range(s.lanes, AxisType::Lane);
    const int64_t n_valid = std::min(size_of(p_.lane) - s.begin, width * s.count);
    const bool masked = n_valid < width * s.count;
    inner_.push_back(u);
    inner_.push_back(l);

    UOp packed;
    if (p_.pack) {
      packed =
          pack_panels(Operand::of(substitute(x_.value, map)), {p_.lane, s.begin, chunk, panels_a_chunk_, s.unroll, s.lanes, n_valid}, summed, inner_);
    }
    for (const auto& [begin, height] : row_blocks()) {
      RangeMap at(map);
      std::vector<UOp> ranges(open), copies;
      UOp panel;
      strip_ = strip_at_ = UOp();
      if (panels_a_chunk_ > 1) {
        panel = fresh_range(panels_a_chunk_, AxisType::Loop);
        panels_.push_back(panel);
      }
      UOp lane_at = (panel ? panel : idx(0)) * width + (u * s.lanes + l);
      if (chunk) lane_at = chunk * (panels_a_chunk_ * width) + lane_at;
      at[p_.lane.node()] = lane_at + s.begin;
      for (size_t i = 0; i < p_.rows.size(); ++i) {
        const UOp r = p_.rows[i].axis;
        const int64_t tile = i == 0 ? height : p_.rows[i].tile, n = size_of(r);
        const UOp up = fresh_range(tile, AxisType::Upcast);
        UOp first = idx(begin);
        const int64_t height_of_all = tiles_a_strip_ * tile;
        if (i > 0 || begin == 0) {
          const bool overlaps = i == 0 && n % height_of_all != 0 && row_blocks().size() == 1;
          const int64_t count = overlaps ? ceil_div(n, height_of_all) : n / height_of_all;
          first = block(r, begin, count, ranges) * height_of_all;
          // The last block begins early enough to be whole; what it computes again is the same.
          if (overlaps) first = alu(Op::Min, {first, idx(n - height_of_all)});
        }
        if (tiles_a_strip_ > 1) {
          strip_tile_ = fresh_range(tiles_a_strip_, AxisType::Loop), strip_copy_ = up;
          panels_.push_back(strip_tile_);
          ranges.push_back(strip_tile_);
          strip_ = fresh_range(height_of_all, AxisType::Upcast), strip_at_ = strip_tile_ * tile + up;
          strip_row_ = first + strip_;
          first = first + strip_tile_ * tile;
        }
        at[r.node()] = first + up;
        copies.push_back(up);
        if (whole_y_) strip_ = strip_row_ = fresh_range(n, AxisType::Upcast), strip_at_ = first + up;
      }
      inner_.insert(inner_.end(), copies.begin(), copies.end());
      if (panel) ranges.push_back(panel);
      std::vector<UOp> terms;
      // Unrolled, the loads of several terms want registers at once.
      const bool roomy = s.unroll <= 2 && product(copies) * static_cast<double>(s.unroll) * 8 <= 5 * target_.n_vector_registers;
      for (size_t i = 0; i < summed.size(); ++i) {
        const bool unrolled = i + 1 == summed.size() && size_of(summed[i]) <= 8 && roomy &&
                              !(panel && product(copies) * static_cast<double>(size_of(summed[i])) > target_.n_vector_registers / 2);
        terms.push_back(with_type(summed[i], unrolled ? AxisType::Unroll : AxisType::Reduce));
        at[summed[i].node()] = terms.back();
      }
      inner_.insert(inner_.end(), terms.begin(), terms.end());
      UOp vector;
      if (p_.pack) {
        UOp flat = panel ? panel : idx(0);
        for (const UOp& k : terms) flat = flat * size_of(k) + k;
        vector = load(index(packed, flat * width + (u * s.lanes + l)));
      } else {
        const UOp gate = lt(p_.lane, size_of(p_.lane));
        vector = substitute(masked ? gate_loads(x_.value, p_.lane, gate) : x_.value, at);
      }
      const UOp element = broadcast_operand(at, strip_ ? std::vector{strip_} : copies, summed);
      const auto dot = [&](const UOp& y) { return UOp::make(Op::MulAcc, c_.sum.dtype(), {vector, y, constant(c_.sum.dtype(), 0)}); };
      const UOp both = c_.terms ? dot(element) : p_.swapped ? element * vector : vector * element;
      std::vector<UOp> closed(terms);
      if (cut_) closed.insert(closed.begin(), c_.summed[0]);
      UOp sum = reduce(both, "add", closed);
      if (y_is_moved_) sum = sum + reduce(dot(constant(DType::UInt32, 0x01010101)), "add", closed) * 128;
      ranges.insert(ranges.end(), copies.begin(), copies.end());
      ranges.push_back(u);
      ranges.push_back(l);
      if (cut_ || heavy_) rest_in_tile(sum, ranges, at, masked);
      else at[c_.sum.node()] = sum;
      if (x_is_moved_) at[c_.sum.node()] = at[c_.sum.node()] - broadcast_sum(at, element, terms) * 128;
      for (const UOp& e : nest_.ends) nest.ends.push_back(end(substitute(masked ? masked_store(e.src(0)) : e.src(0), at), ranges));
    }
  }

  UOp broadcast_operand(RangeMap at, std::span<const UOp> copies, std::span<const UOp> summed) {
    if (!stage_y_) return substitute(y_.value, at);
    // The rows of one block: ranges of their own in what is tiled.
    RangeMap rows;
    for (const ContractPlan::Row& r : p_.rows) rows.emplace(r.axis.node(), strip_ ? strip_row_ : at.at(r.axis.node()));
    if (strip_) at.emplace(strip_.node(), strip_at_);
    const Operand y = Operand::of(substitute(y_.value, rows));
    // The last block's rows that the one before has would be staged twice: that pays where several elements make one.
    const bool overlaps = !p_.rows.empty() && row_blocks().size() == 1 && size_of(p_.rows[0].axis) % p_.rows[0].tile != 0;
    const Tile block = overlaps && !c_.terms ? Tile() : find_tile(y, summed, copies);
    return !block.empty() ? read_tile(y, block, at, p_.lanes, inner_) : substitute(y_.value, at);
  }

  // Of the terms of the broadcast operand, which are bytes, for each row of the tile.
  UOp broadcast_sum(RangeMap at, const UOp& element, std::span<const UOp> terms) {
    const auto dot = [](const UOp& y) {
      return UOp::make(Op::MulAcc, DType::Int32, {constant(DType::UInt32, 0x01010101), y, constant(DType::Int32, 0)});
    };
    const UOp unmoved = constant(DType::Int32, y_is_moved_ ? 512 * static_cast<int64_t>(product(c_.summed)) : 0);
    const size_t first = inner_.size();
    const UOp l = fresh_range(p_.lanes, AxisType::Lane);
    if (tiles_a_strip_ > 1 && element.op() == Op::Load) {  // of all rows of the strip, from where they are staged
      const UOp o = fresh_range(size_of(strip_) / p_.lanes, AxisType::Loop);
      RangeMap own{{strip_tile_.node(), idx(0)}, {strip_copy_.node(), o * p_.lanes + l}};
      inner_.push_back(o);
      for (const UOp& k : terms) inner_.push_back(own[k.node()] = with_type(k, AxisType::Reduce));
      const UOp sums = reduce(dot(substitute(element, own)), "add", std::span(inner_).subspan(first + 1));
      inner_.push_back(l);
      return load(index(UOp::make(Op::Stage, DType::Int32, {sums, o, l}), strip_at_)) + unmoved;
    }
    const UOp& y = c_.factor[p_.swapped ? 0 : 1];
    const bool whole = size_of(c_.groups) % p_.lanes == 0 && is_contiguous(y_, c_.groups);
    for (UOp k : c_.summed) {
      const bool last = k == c_.groups;
      if (last && !whole) k = c_.terms;
      inner_.push_back(fresh_range(size_of(k) / (last && whole ? p_.lanes : 1), AxisType::Reduce));
      at[k.node()] = last && whole ? inner_.back() * p_.lanes + l : inner_.back();
    }
    if (whole) inner_.push_back(l);
    const UOp sum = whole ? dot(substitute(y_.value, at)) : cast(substitute(y, at), DType::Int32);
    return reduce(sum, "add", std::span(inner_).subspan(first)) + (whole ? unmoved : constant(DType::Int32, 0));
  }

  // The accumulators of a finished tile rest in scratch memory, and a loop over the tile does what follows the sum: where
  // that is much code for each vector, it is there once. Those of a cut sum rest there while other tiles are worked on:
  // the tile is then over all ranges inside of the cut.
  // Where rows, not lanes, follow each other in the output, squares of the tile are transposed when they are read.
  void rest_in_tile(const UOp& sum, std::vector<UOp>& ranges, RangeMap& at, bool masked) {
    RangeMap own, later;
    const auto is_across = [&](const UOp& r) { return p_.across && at.at(p_.across.node()).depends_on(r) && size_of(r) % kSquare == 0; };
    const bool turned = std::ranges::any_of(ranges, [&](const UOp& r) { return axis_type(r.node()) == AxisType::Upcast && is_across(r); });
    std::vector<UOp> dims;
    UOp flat = idx(0);
    for (UOp& r : ranges) {
      const AxisType t = axis_type(r.node());
      if (contains(pre_, r) || (!cut_ && t != AxisType::Upcast && t != AxisType::Lane)) continue;
      const UOp dim = with_type(r, t == AxisType::Weak ? AxisType::Loop : t);
      own.emplace(r.node(), dim);
      dims.push_back(dim);
      const bool is_copy = t == AxisType::Upcast;
      if (is_copy || (turned && t == AxisType::Lane)) {
        const bool is_lane = is_copy && turned && is_across(r);
        const UOp then = with_type(r, is_lane ? AxisType::Lane : is_copy && !(turned && masked) ? AxisType::Loop : AxisType::Upcast);
        later.emplace(r.node(), then);
        after_.push_back(then);
        r = then;
      }
      flat = flat * size_of(r) + r;
    }
    for (auto& [r, v] : at) v = substitute(v, later);
    std::vector<UOp> src{substitute(sum, own)};
    src.insert(src.end(), dims.begin(), dims.end());
    (cut_ ? cut_dims_ : inner_).insert((cut_ ? cut_dims_ : inner_).end(), dims.begin(), dims.end());
    at[c_.sum.node()] = load(index(UOp::make(Op::Stage, sum.dtype(), src), flat));
  }

  // What follows the sum is heavy when a vector of it is more than a few instructions: a store or load with lanes far
  // apart is one for each lane.
  bool is_heavy() const {
    double work = 0;
    for (const UOp& e : nest_.ends)
      for (const Node* n : toposort(e.src(0), [](const Node* m) { return m->op != Op::Reduce; })) {
        if (n->op == Op::Load || n->op == Op::Store) {
          const Stride s = stride_of(affine_of(UOp(n->src()[0]->src()[1])), p_.lane);
          work += s.linear && s.value <= 1 ? 1 : static_cast<double>(2 * p_.lanes);
        } else {
          work += is_elementwise(n->op) && n->dtype != DType::WeakInt;
        }
      }
    return work > 16;
  }

  // Where the first row axis does not divide: many blocks overlap at the end, a few get a shorter one.
  std::vector<std::pair<int64_t, int64_t>> row_blocks() const {
    if (p_.rows.empty()) return {{0, 1}};
    const int64_t n = size_of(p_.rows[0].axis), tile = p_.rows[0].tile;
    if (n % tile == 0 || (n / tile >= 8 && !output_is_read_)) return {{0, tile}};
    return {{0, tile}, {n / tile * tile, n % tile}};
  }

  // Packed terms of rows that lie next to each other are staged in whole vectors, for some tiles at once.
  int64_t tiles_a_strip() const {
    if (!c_.terms || !stage_y_ || p_.rows.size() != 1 || row_blocks().size() != 1 || !is_contiguous(y_, p_.rows[0].axis)) return 1;
    const int64_t tile = p_.rows[0].tile, n = size_of(p_.rows[0].axis), height = std::lcm(tile, p_.lanes), all = ceil_div(32, height) * height;
    return n < all || (output_is_read_ && n % all != 0) || ceil_div(n, all) * all > n + n / 8 ? 1 : all / tile;
  }

  // Lanes beyond the end load nothing (but for the sum, which is over padding there) and store nothing.
  UOp masked_store(const UOp& st) const {
    const UOp gate = lt(p_.lane, size_of(p_.lane));
    const UOp hole = UOp::make(Op::Variable, c_.sum.dtype(), {}, Arg::list({Arg("sum"), 0, 0}));
    const UOp value = gate_loads(substitute(st.src(1), {{c_.sum.node(), hole}}), p_.lane, gate);
    return store(gated(st.src(0), gate), substitute(value, {{hole.node(), c_.sum}}));
  }

  void finish(Nest nest, std::vector<Nest>& out) {
    nest.order = pre_;
    if (cut_) {
      nest.order.push_back(c_.summed[0]);
      nest.order.insert(nest.order.end(), cut_dims_.begin(), cut_dims_.end());
    }
    for (const auto* list : {&mid_, &panels_, &after_, &inner_}) nest.order.insert(nest.order.end(), list->begin(), list->end());
    nest.opts += "contract rows";
    for (const ContractPlan::Row& r : p_.rows) nest.opts += fmt::format(" {}", r.tile);
    nest.opts += fmt::format(" vectors {}x{}{}{}{}{} ", p_.vectors, p_.lanes, p_.pack ? " pack" : "",
                             tiles_a_strip_ > 1 ? " strip"
                             : stage_y_         ? " stage"
                                                : "",
                             cut_ ? " cut" : "", p_.across ? " across" : "");
    // What is packed or staged inside of an outer loop would be made again in each part of an inner one.
    std::vector<UOp> candidates = pre_, parallel;
    if (!cut_ && !pack_is_open_) candidates.insert(candidates.end(), mid_.begin(), mid_.end());
    for (const UOp& r : candidates) {
      for (const UOp& e : nest.ends)
        if (!contains(closed_ranges(e.node()), r)) goto done;
      parallel.push_back(r);
    }
  done:
    // Every part packs what all iterations share.
    const double pack_ns = pack_is_open_ || cut_ ? 0 : product(c_.summed) * static_cast<double>(size_of(p_.lane)) * p_.pack_cycles * kNsPerCycle;
    parallelize(nest, parallel, p_.cycles * kNsPerCycle, target_, pack_ns);
    out.push_back(std::move(nest));
  }

  const Nest& nest_;
  const Contraction& c_;
  const ContractPlan& p_;
  const Target& target_;
  Operand x_, y_;
  bool x_is_moved_ = false, y_is_moved_ = false;  // by 128, so that bytes are unsigned, signed
  std::vector<UOp> rows_, vector_side_;
  bool chunked_ = false, cut_ = false, cut_parts_ = false, output_is_read_ = false, pack_is_open_ = false, heavy_ = false, stage_y_ = false,
       whole_y_ = false;
  int64_t panels_a_chunk_ = 1, tiles_a_strip_ = 1;
  UOp strip_, strip_row_;                   // rows that are staged at once: their range, its place among all rows
  UOp strip_tile_, strip_copy_, strip_at_;  // a tile of it, the rows of that, their place in the strip
  std::unordered_map<const Node*, UOp> loops_;
  std::map<std::pair<const Node*, int64_t>, std::vector<UOp>> blocks_;
  std::vector<UOp> pre_, cut_dims_, mid_, panels_, after_, inner_;  // loops, outermost first
};

void unroll_short_sums(Nest& nest, const UOp& sum) {
  RangeMap map;
  for (const Node* n : toposort(nest.ends))
    if (n->op == Op::Reduce && n != sum.node())
      for (const UOp& r : closed_ranges(n)) map.emplace(r.node(), with_type(r, AxisType::Unroll));
  for (const UOp& r : closed_ranges(sum.node())) map.erase(r.node());
  replace_ranges(nest, map);
}

// Few outputs of long sums: the terms are lanes, a tile of sums is computed at once, and what does not lie along the sum is laid so
// first. Lane l of a sum has the terms l, l + lanes ..; at last halves of the lanes are added. Gives false where chains of terms
// take less time; that is a matter of sizes and strides alone, as it decides the order.
bool dots(Nest& nest, const Contraction& c, const Target& target, std::vector<Nest>& out) {
  constexpr double kMostSums = 16;
  if (c.summed.size() != 1 || !c.batch.empty() || c.own[0].size() > 1 || c.own[1].size() > 1) return false;
  const UOp& k = c.summed[0];
  const int64_t n_terms = size_of(k), lanes = 64 / c.n_bytes;
  const double terms = static_cast<double>(n_terms), steps = std::ceil(terms / static_cast<double>(lanes)),
               n[] = {product(c.own[0]), product(c.own[1])};
  double cycles = n[0] * n[1] * (0.55 * steps + 2), chain = 1e300, pack = 0;
  for (const size_t i : {0, 1}) {
    const Operand& x = c.x[i];
    if (x.value != x.load || x.load.dtype() != c.sum.dtype() || x.load.src(0).n_src() == 3) return false;
    if (std::ranges::any_of(c.own[i], [](const UOp& r) { return r.n_src() > 0; })) return false;  // as far as another loop says
    if (!is_contiguous(x, k)) pack += n[i] > kMostCopied ? 1e300 : 0.8 * terms * n[i];
    if (n[i] < 4) continue;
    const double rows = n[1 - i], vectors = std::ceil(n[i] / static_cast<double>(lanes)),
                 copy = is_contiguous(x, c.own[i][0]) ? 0 : copy_cycles(x, k) * std::max<double>(n[i], kSquare);
    chain = std::min(chain, terms * (copy + std::max({0.55 * rows * vectors, rows + vectors / 2, std::min(rows * vectors, 4.0)})));
  }
  const double few = std::min(n[0], n[1]);
  if (n_terms <= kShortSum || k.n_src() > 0 || few > kMostCopied || (few < 2 && pack == 0) || cycles + pack > 0.8 * chain) return false;

  double best = 1e300, tile[] = {1, 1};
  for (double a = 1; a <= std::min(n[0], kMostSums); ++a)
    for (double b = 1; b <= std::min(n[1], std::floor(kMostSums / a)); ++b) {
      const double n_tiles = std::ceil(n[0] / a) * std::ceil(n[1] / b);
      const double all = n_tiles * (steps * std::max({a * b / 2, 0.75 * (a + b), 4.0}) + 1.5 * a * b + 12);
      if (all >= best || (reads_output(nest) && n_tiles * a * b != n[0] * n[1])) continue;  // what is read may not be computed twice
      best = all, tile[0] = a, tile[1] = b;
    }
  const UOp o = fresh_range(ceil_div(n_terms, lanes), AxisType::Reduce), l = fresh_range(lanes, AxisType::Lane);
  std::vector<UOp> loops, copies, fill;
  UOp factor[] = {c.x[0].value, c.x[1].value};
  RangeMap at{{k.node(), o * lanes + l}};
  for (const size_t i : {0, 1}) {
    if (!is_contiguous(c.x[i], k)) {
      const UOp along = with_type(k, AxisType::Loop);
      RangeMap own{{k.node(), along}};
      std::vector<UOp> stage{along};
      UOp place = k;
      for (const UOp& r : c.own[i]) {
        stage.push_back(own[r.node()] = with_type(r, AxisType::Upcast));
        place = r * n_terms + k;
      }
      fill.insert(fill.end(), stage.begin(), stage.end());
      stage.push_back(substitute(factor[i], own));
      std::ranges::reverse(stage);
      factor[i] = load(index(UOp::make(Op::Stage, c.sum.dtype(), stage), place));
    }
    if (n_terms % lanes) factor[i] = gate_loads(factor[i], k, lt(k, n_terms));
    for (const UOp& r : c.own[i]) {
      // The last block begins early enough to be whole; what it computes again is the same.
      const auto height = static_cast<int64_t>(tile[i]);
      loops.push_back(fresh_range(ceil_div(size_of(r), height), AxisType::Weak));
      copies.push_back(fresh_range(height, AxisType::Upcast));
      at[r.node()] = alu(Op::Min, {loops.back() * height, idx(size_of(r) - height)}) + copies.back();
    }
  }
  if (n[1] > n[0]) std::ranges::reverse(loops);  // the smaller operand stays in the cache
  at[c.sum.node()] = reduce(substitute(factor[0] * factor[1], at), "add", std::vector<UOp>{o, l});
  nest.order = loops;
  for (const std::vector<UOp>& list : {fill, {o}, copies, {l}}) nest.order.insert(nest.order.end(), list.begin(), list.end());
  copies.insert(copies.end(), loops.begin(), loops.end());
  for (UOp& e : nest.ends) e = remake_end(e, at, copies);
  nest.opts += fmt::format("dots {}x{}{} ", tile[0], tile[1], pack > 0 ? " pack" : "");
  parallelize(nest, loops, (cycles + pack) * kNsPerCycle, target, pack * kNsPerCycle);
  out.push_back(std::move(nest));
  return true;
}

// One row times few columns that lie next to each other is one vector of sums, each of which waits for its last multiply-add:
// four chains take every fourth term. Sizes and strides alone decide, as for dots.
bool chains(Nest& nest, const Contraction& c, std::vector<Nest>& out) {
  constexpr int64_t kChains = 4;
  const size_t side = c.own[0].empty();
  if (c.summed.size() != 1 || c.own[side].size() != 1 || c.own[1 - side].size() + c.batch.size() > 0) return false;
  const UOp &k = c.summed[0], &column = c.own[side][0];
  if (k.n_src() + column.n_src() > 0 || size_of(column) > 16 || size_of(k) <= kShortSum) return false;
  if (!is_contiguous(c.x[side], column) || !is_contiguous(c.x[1 - side], k)) return false;
  const UOp o = fresh_range(size_of(k) / kChains, AxisType::Reduce), gate = lt(column, size_of(column));
  const UOp l = fresh_range(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size_of(column)))), AxisType::Lane);
  UOp sums[kChains];
  for (int64_t i = 0; i < kChains; ++i) sums[i] = reduce(substitute(c.sum.src(0), {{k.node(), o * kChains + i}}), "add", std::vector<UOp>{o});
  UOp sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int64_t i = size_of(k) / kChains * kChains; i < size_of(k); ++i) sum = sum + substitute(c.sum.src(0), {{k.node(), idx(i)}});
  for (UOp& e : nest.ends) {
    const UOp value = substitute(e.src(0).src(1), {{c.sum.node(), sum}});
    const UOp masked = store(gated(e.src(0).src(0), gate), gate_loads(value, column, gate));
    e = end(substitute(masked, {{column.node(), l}}), std::vector<UOp>{l});
  }
  std::ranges::replace(nest.order, k, o);
  std::ranges::replace(nest.order, column, l);
  nest.opts += "chains ";
  out.push_back(std::move(nest));
  return true;
}

// In an image with a margin the pixels of a row follow each other, and rows lie a little farther apart than they are long.
// Lanes may then run over rows: those in the margin compute what nobody reads. Gives the nest with the sums of all places
// of the image in a STAGE, and the contraction that fills it.
std::optional<Nest> flatten(const Nest& nest, const Contraction& c, Contraction& flat) {
  for (const size_t side : {0, 1}) {
    const Operand& x = c.x[side];
    if (!x.is_plain || c.terms) continue;
    for (const UOp& row : c.own[side])
      for (const UOp& column : c.own[side]) {
        const Stride pitch = x.stride(row);
        const int64_t n = size_of(column), n_places = (size_of(row) - 1) * pitch.value + n;
        if (row == column || !pitch.linear || pitch.value <= n || 2 * n_places > 3 * n * size_of(row) || !is_contiguous(x, column)) continue;
        if (row.n_src() + column.n_src() > 0 || x.is_gated_by(std::vector<UOp>{row, column})) continue;
        UOp innermost;  // of the other output axes; its blocks share the STAGE
        for (const UOp& r : nest.order)
          if (axis_type(r.node()) == AxisType::Weak && r != row && r != column) innermost = r;
        if (!innermost || (!c.own[1 - side].empty() && !contains(c.own[1 - side], innermost))) continue;
        const UOp place = fresh_range(n_places, AxisType::Weak);
        const RangeMap map{{row.node(), idx(0)}, {column.node(), place}};
        flat = c;
        flat.sum = substitute(c.sum, map);
        flat.x[side] = Operand::of(substitute(x.value, map));
        std::erase_if(flat.own[side], [&](const UOp& r) { return r == row || r == column; });
        flat.own[side].push_back(place);
        Nest staged = nest;
        const UOp sums = UOp::make(Op::Stage, flat.sum.dtype(), {flat.sum, place});
        for (UOp& e : staged.ends) e = substitute(e, {{c.sum.node(), load(index(sums, row * pitch.value + column))}});
        staged.order.push_back(place);
        return staged;
      }
  }
  return {};
}

}  // namespace

bool contract(Nest& nest, const Target& target, std::vector<Nest>& out) {
  Contraction c;
  if (!recognise(nest, c)) return false;
  unroll_short_sums(nest, c.sum);
  c = Contraction();
  if (!recognise(nest, c)) return false;
  if ((c.own[0].empty() && c.own[1].empty()) || product(c.summed) < 2) return false;
  if (c.dtype != DType::Int32 && (chains(nest, c, out) || dots(nest, c, target, out))) return true;
  const Contraction unpacked = c;
  pack_factors(c, target);
  const std::vector<ContractPlan> plans = plans_of(nest, c, target);
  if (plans.empty() || (!c.terms && c.dtype == DType::Int32)) return false;
  const auto too_big = [&](const ContractPlan& p) {
    return p.pack && c.summed.size() == 1 && product(c.summed) * static_cast<double>(p.vectors * p.lanes * c.n_bytes) > kMostScratch;
  };
  ContractPlan p = plans[0];
  if (p.pack) {
    // Packing is repaid by rows. A few rows over operands that lie along the sum do better with lanes along the sum.
    const double rows = product(c.own[p.swapped ? 0 : 1]);
    const UOp& k = unpacked.summed.back();
    const auto lies_along = [&](const Operand& x) { return x.is_plain && is_contiguous(x, k); };
    const bool along = size_of(k) >= 32 && lies_along(unpacked.x[0]) && lies_along(unpacked.x[1]);
    const bool is_cheap = c.terms || c.x[p.swapped ? 1 : 0].square_terms(c.summed.back());
    if (rows < 2 || (rows < (is_cheap ? 4 : 16) && along) || too_big(p)) return false;
  }
  Contraction flat;
  if (const std::optional<Nest> staged = flatten(nest, c, flat))
    if (const std::vector<ContractPlan> others = plans_of(nest, flat, target);
        !others.empty() && others[0].cycles < p.cycles && nest.pick("flat", 2) == 0)
      return block_rows(*staged, target, out, RowsLie::Outside);
  p = plans[static_cast<size_t>(nest.pick("plan", static_cast<int>(std::min<size_t>(plans.size(), kMostPlans))))];
  if (nest.pick("pack", p.must_pack ? 1 : 2) == 1) p.pack = !p.pack;
  if (too_big(p)) p = plans[0];
  Builder(nest, c, p, target).run(out);
  return true;
}

}  // namespace whit::codegen
