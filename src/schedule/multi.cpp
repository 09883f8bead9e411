#include "schedule/multi.h"

#include <algorithm>

#include "base/flags.h"
#include "base/lists.h"
#include "base/text.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "schedule/graph.h"

namespace whit {
namespace {

using Devices = std::vector<uint16_t>;
using Parts = std::vector<UOp>;

UOp to_device(const UOp& x, uint16_t device) { return x->device == device ? x : UOp::make(Op::Copy, x.dtype(), {x}, Arg(device_name(device))); }
UOp on(const UOp& x, uint16_t device) { return x->device ? to_device(x, device) : x; }

UOp piece(const UOp& x, int64_t axis, int64_t number, int64_t n) {
  if (x.shape().empty()) return x;  // a place or a size on an axis
  const auto a = static_cast<size_t>(axis);
  const int64_t size = x.shape()[a] / n;
  return whit::cut(x, a, number * size, (number + 1) * size);
}

// Equal pieces side by side: a new leading axis moves before the axis and melts into it.
UOp joined(const Parts& pieces, int64_t axis) {
  const Shape& s = pieces[0].shape();
  const auto a = static_cast<size_t>(axis);
  Dims dims(s.begin(), s.end());
  dims[a] *= static_cast<int64_t>(pieces.size());
  return reshape(permute(UOp::make(Op::Stack, pieces[0].dtype(), pieces), whit::moved_axis(s.size() + 1, 0, a)), dims);
}

// ---- allreduce

class AllReduce {
 public:
  AllReduce(std::string_view monoid, const Devices& devices) : op_(monoid_op(monoid)), d_(devices), n_(devices.size()) {}

  Parts operator()(const Parts& x) const {
    const int64_t numel = x[0].shape().numel(), n = static_cast<int64_t>(n_);
    const bool big = n > 2 && numel > flag::RING_ALLREDUCE_THRESHOLD();
    const auto wanted = [&](int64_t flag) { return flag >= 2 || (flag == 1 && big); };
    const bool all_to_all = wanted(flag::ALL2ALL());
    if (!all_to_all && wanted(flag::TREE())) return tree(x);
    if (!all_to_all && !wanted(flag::RING())) return naive(x);
    // Each device reduces one chunk, and all get the chunks.
    const int64_t flat[] = {numel}, pads[] = {0, (n - numel % n) % n}, all[] = {0, numel};
    std::vector<Parts> chunks(n_);  // by device
    for (size_t i = 0; i < n_; ++i) {
      const UOp padded = pad(reshape(x[i], flat), pads);
      for (int64_t k = 0; k < n; ++k) chunks[i].push_back(piece(padded, 0, k, n));
    }
    for (size_t k = 0; k < n_; ++k) all_to_all ? direct(chunks, k) : ring(chunks, k);
    return mapped(chunks, [&](const Parts& c) { return reshape(shrink(joined(c, 0), all), x[0].shape()); });
  }

 private:
  UOp merge(const UOp& a, const UOp& b) const { return alu(op_, {a, b}); }
  UOp fold_on(const Parts& x, size_t device) const {
    UOp sum = on(x[0], d_[device]);
    for (size_t i = 1; i < n_; ++i) sum = merge(sum, on(x[i], d_[device]));
    return sum;
  }
  Parts naive(const Parts& x) const {
    Parts out;
    for (size_t i = 0; i < n_; ++i) out.push_back(fold_on(x, i));
    return out;
  }
  Parts tree(Parts x) const {
    size_t step = 1;
    for (; step < n_; step *= 2)
      for (size_t i = 0; i + step < n_; i += 2 * step) x[i] = merge(x[i], on(x[i + step], d_[i]));
    while (step /= 2)
      for (size_t i = 0; i + step < n_; i += 2 * step) x[i + step] = on(x[i], d_[i + step]);
    return x;
  }
  void direct(std::vector<Parts>& chunks, size_t k) const {
    const UOp sum = fold_on(mapped(chunks, [&](const Parts& c) { return c[k]; }), k);
    for (size_t i = 0; i < n_; ++i) chunks[i][k] = on(sum, d_[i]);
  }
  // The sum of chunk k travels from device k + 1 around to device k, then the result does.
  void ring(std::vector<Parts>& chunks, size_t k) const {
    UOp sum = chunks[(k + 1) % n_][k];
    for (size_t s = 2; s <= n_; ++s) sum = merge(on(sum, d_[(k + s) % n_]), chunks[(k + s) % n_][k]);
    for (size_t s = 0; s < n_; ++s) chunks[(k + s) % n_][k] = sum = on(sum, d_[(k + s) % n_]);
  }

  Op op_;
  const Devices& d_;
  size_t n_;
};

// ---- rules

// How an op works on pieces. Axes are those of the whole values; -1 is whole.
struct Plan {
  Dims want{};              ///< by source
  int64_t axis = -1;        ///< of the result
  bool is_partial = false;  ///< each device has a part of the sum (product ..) only
};

int64_t first_cut(std::span<const int64_t> axes) {
  const auto it = std::find_if(axes.begin(), axes.end(), [](int64_t a) { return a >= 0; });
  return it == axes.end() ? -1 : *it;
}

// Where a movement op moves an axis whose pieces are to stay where they are; -1 when they cannot.
int64_t moved_axis(const Node* n, int64_t axis, int64_t n_devices) {
  const Shape& in = n->src()[0]->shape;
  const auto a = static_cast<size_t>(axis);
  const auto arg = n->op == Op::Stack ? std::span<const int64_t>() : n->arg.as_ints();
  const auto named = std::find(arg.begin(), arg.end(), axis);
  bool stays = true;
  switch (n->op) {
    case Op::Reshape: {  // what is before the axis must stay before it
      int64_t before = 1;
      for (size_t i = 0; i < a; ++i) before *= in[i];
      for (size_t b = 0; b < n->shape.size(); before /= std::max<int64_t>(1, n->shape[b++])) {
        if (before == 1 && n->shape[b] % n_devices == 0) return static_cast<int64_t>(b);
        if (before % std::max<int64_t>(1, n->shape[b]) != 0) return -1;
      }
      return -1;
    }
    case Op::Permute: return named - arg.begin();
    case Op::Stack: return axis + 1;
    case Op::Pad: stays = arg[2 * a] == 0 && arg[2 * a + 1] == 0; break;
    case Op::Shrink: stays = n->shape[a] == in[a] && arg[2 * a] == 0; break;
    case Op::Flip: stays = named == arg.end(); break;
    case Op::Window: stays = axis != arg[0]; break;
    case Op::Unwindow: stays = axis != arg[0] && a + 1 != in.size(); break;
    default:  // EXPAND: an axis of size 1 is not cut
      break;
  }
  return stays ? axis : -1;
}

Plan plan_of(const Node* n, std::span<const int64_t> have, int64_t n_devices) {
  const int64_t cut = first_cut(have);
  const Plan whole{Dims(n->n_src, -1), -1};
  const auto index_rank = static_cast<int64_t>(n->n_src > 1 ? n->src()[1]->shape.size() : 0);
  switch (n->op) {
    case Op::Store:  // into the own memory of each device
    case Op::After: return whole;
    case Op::Reduce: {
      const bool crosses = std::ranges::any_of(n->arg.as_list().subspan(1), [&](const Arg& axis) { return axis.as_int() == cut; });
      return {{cut}, crosses ? -1 : cut, crosses};
    }
    case Op::Gather:  // (x, index): rows of x may be cut within, or the index
      if (have[0] > 0) return {{have[0], -1}, index_rank + have[0] - 1};
      return {{-1, have[1]}, have[1]};
    case Op::Scatter: {  // (base, index, src): rows may be cut within, or which they are, or the terms of a sum
      const int64_t within = have[0] > 0 ? have[0] : have[2] - index_rank + 1;
      if (have[0] > 0 || (have[0] < 0 && within > 0)) return {{within, -1, index_rank + within - 1}, within};
      if (have[0] == 0) return {{0, -1, -1}, 0};
      return n->arg.as_str() == "add" ? Plan{{-1, cut, cut}, -1, true} : whole;
    }
    default: break;
  }
  if (is_movement(n->op)) {
    const int64_t to = moved_axis(n, cut, n_devices);
    return to < 0 ? whole : Plan{Dims(n->n_src, cut), to};
  }
  WHIT_USER(is_elementwise(n->op) || n->op == Op::Contiguous, NotImplemented, "[shard] {} on several devices", n->op);
  if (n->op == Op::Bitcast && cut + 1 == static_cast<int64_t>(n->shape.size()) && n->shape.back() % n_devices != 0) return whole;
  Plan p{{}, cut};
  for (const Node* s : n->src()) p.want.push_back(s->shape.empty() ? -1 : cut);
  return p;
}

// The op's argument for a piece.
Arg local_arg(const Node* n, const Plan& p, int64_t n_devices) {
  if (p.axis < 0 || (n->op != Op::Reshape && n->op != Op::Expand && n->op != Op::Shrink)) return n->arg;
  const auto ints = n->arg.as_ints();
  Dims a(ints.begin(), ints.end());
  a[static_cast<size_t>(n->op == Op::Shrink ? 2 * p.axis + 1 : p.axis)] /= n_devices;
  return a;
}

// ---- the pass

class Split {
 public:
  Split(const NodeList& order, const sched::NodeIndex& index) : index_(index), done_(order.size()) {
    for (const Node* n : order)
      for (const uint16_t d : is_multi(n->device) ? devices_of(n->device) : Devices())
        if (std::find(all_.begin(), all_.end(), d) == all_.end()) all_.push_back(d);
    for (size_t i = 0; i < order.size(); ++i) visit(order[i], done_[i]);
  }

  bool any() const { return !all_.empty(); }
  const Shards& at(const UOp& root) const { return done_[static_cast<size_t>(index_.find(root.node()))]; }
  // A value that is whole everywhere, or on one device, on others.
  static Shards copied(const Shards& x, const Devices& devices) {
    Shards out;
    for (const uint16_t d : devices) {
      if (x.axis >= 0) {
        out.parts.push_back(joined(mapped(x.parts, [&](const UOp& p) { return on(p, d); }), x.axis));
      } else {
        const auto same = std::find_if(x.parts.begin(), x.parts.end(), [&](const UOp& p) { return p->device == d; });
        out.parts.push_back(to_device(same == x.parts.end() ? x.parts[0] : *same, d));
      }
    }
    return out;
  }

 private:
  void visit(const Node* n, Shards& to) {
    const Devices devices = devices_of(n->device);
    std::vector<Shards> src;
    for (const Node* s : n->src()) {
      const Shards& x = done_[static_cast<size_t>(index_.find(s))];
      const bool here = !s->device || s->device == n->device || (!is_multi(s->device) && !is_multi(n->device));
      WHIT_USER(n->op == Op::Copy || here, Runtime, "[shard] {} of values on {} and on {}; move one of them with to() or shard()", n->op,
                device_name(n->device), device_name(s->device));
      src.push_back(!s->device && n->device ? Shards{own(x, devices), -1} : x);
    }
    if (!n->device) {
      to.parts = everywhere(n, src);
    } else if (n->op == Op::Copy) {
      to = copied(src[0], devices);
    } else if (!is_multi(n->device)) {
      to.parts = {again(n, nth(src, 0), n->arg)};
    } else {
      split(n, src, devices, to);
    }
  }

  static std::vector<UOp> nth(std::span<const Shards> src, size_t i) {
    return mapped(src, [&](const Shards& s) { return s.parts[i % s.parts.size()]; });
  }

  // What has no device is computed where it is wanted, by each device for itself. So there are as many of it as
  // devices, and one more for those that are not among them; what they share is constants.
  Parts everywhere(const Node* n, std::span<const Shards> src) const {
    Parts out;
    for (size_t i = 0; i <= all_.size(); ++i) {
      std::vector<UOp> one = nth(src, i);
      // Movement of a constant is never kept in memory, other things may be: they must know their device.
      const bool moves = is_movement(n->op) && n->op != Op::Pad && n->op != Op::Stack && n->op != Op::Unwindow;
      if (i < all_.size() && !one.empty() && !moves) one[0] = to_device(one[0], all_[i]);
      UOp u = one.empty() ? UOp(n) : n->op == Op::Shard ? own_piece(n, one[0], i) : again(n, one, n->arg);
      out.push_back(i < all_.size() && n->op == Op::Lanes ? to_device(u, all_[i]) : u);
    }
    return out;
  }
  // In the body of a function nothing says which devices a constant is for.
  UOp own_piece(const Node* n, const UOp& x, size_t device) const {
    const int64_t axis = n->arg.int_at(0), n_devices = n->arg.int_at(1);
    WHIT_USER(n_devices == static_cast<int64_t>(all_.size()), NotImplemented,
              "[shard] a constant is cut for {} devices in a graph over {}; put it on a device first", n_devices, all_.size());
    return piece(x, axis, std::min(static_cast<int64_t>(device), n_devices - 1), n_devices);
  }
  Parts own(const Shards& x, const Devices& devices) const {
    return mapped(devices, [&](uint16_t d) { return x.parts[static_cast<size_t>(std::ranges::find(all_, d) - all_.begin())]; });
  }

  static UOp again(const Node* n, std::span<const UOp> src, const Arg& arg) {
    if (n->op == Op::Reshape) return reshape(src[0], arg.as_ints());
    if (n->n_src == 1 || (n->op != Op::Shrink && n->op != Op::Pad)) return UOp::make(n->op, n->dtype, src, arg);
    std::vector<UOp> sizes = UOp(n).srcs();  // places and sizes are of no device
    sizes[0] = src[0];
    return UOp::make(n->op, n->dtype, sizes, arg);
  }

  static Shards cut(const Shards& x, int64_t axis, const Devices& devices) {
    if (x.axis == axis) return x;
    if (axis < 0) return copied(x, devices);
    Shards out{{}, axis};
    const auto n = static_cast<int64_t>(devices.size());
    for (int64_t i = 0; i < n; ++i) {
      const auto d = static_cast<size_t>(i);
      if (x.axis < 0) {
        out.parts.push_back(piece(x.parts[d % x.parts.size()], axis, i, n));
      } else {
        out.parts.push_back(joined(mapped(x.parts, [&](const UOp& p) { return on(piece(p, axis, i, n), devices[d]); }), x.axis));
      }
    }
    return out;
  }

  static void split(const Node* n, std::vector<Shards>& src, const Devices& devices, Shards& to) {
    const auto n_devices = static_cast<int64_t>(devices.size());
    switch (n->op) {
      case Op::Buffer: to.parts = buffer_parts(UOp(n)); return;
      case Op::Unshard:
        WHIT_CHECK(src[0].axis < 0, "UNSHARD of a value that is cut already");
        to = {src[0].parts, n->arg.int_at(0)};
        return;
      case Op::Shard: to = {cut(src[0], n->arg.int_at(0), devices).parts, -1}; return;
      default: break;
    }
    const auto have = mapped(src, &Shards::axis);
    const Plan p = first_cut(have) < 0 ? Plan{Dims(n->n_src, -1)} : plan_of(n, have, n_devices);
    for (size_t i = 0; i < src.size(); ++i) src[i] = cut(src[i], p.want[i], devices);
    const Arg arg = local_arg(n, p, n_devices);
    for (size_t d = 0; d < devices.size(); ++d) {
      std::vector<UOp> one = nth(src, d);
      if (n->op == Op::Scatter && p.want[0] == 0)  // the own rows begin at 0
        one[1] = cast(one[1], DType::Int64) - constant(DType::Int64, static_cast<int64_t>(d) * one[0].shape()[0]);
      if (n->op == Op::Scatter && p.is_partial && d > 0) one[0] = broadcast_scalar(constant(n->dtype, 0), n->shape);
      to.parts.push_back(again(n, one, arg));
    }
    if (p.is_partial) to.parts = AllReduce(n->op == Op::Reduce ? n->arg.at(0).as_str() : n->arg.as_str(), devices)(to.parts);
    to.axis = p.axis;
  }

  const sched::NodeIndex& index_;
  Devices all_{};  // that are among several
  std::vector<Shards> done_;
};

}  // namespace

std::vector<Shards> split_devices(std::span<const UOp> roots) {
  const std::vector<UOp> prepared = sched::prepare(roots, false);
  sched::NodeIndex index;
  const NodeList order = sched::collect(prepared, index);
  const Split pass(order, index);
  if (!pass.any()) return mapped(roots, [](const UOp& u) { return Shards{{u}}; });
  std::vector<Shards> out;
  for (size_t i = 0; i < roots.size(); ++i) {
    Shards x = pass.at(prepared[i]);
    if (!prepared[i]->device) x.parts = {x.parts.back()};
    if (is_multi(roots[i]->device) && x.parts.size() == 1) x = Split::copied(x, devices_of(roots[i]->device));
    out.push_back(std::move(x));
  }
  return out;
}

int64_t shard_axis(const UOp& x) {
  const Node* n = x.node();
  while (n->op == Op::Detach) n = n->src()[0];
  if (!is_multi(n->device)) return -1;
  return n->op == Op::Unshard ? n->arg.int_at(0) : split_devices(std::span(&x, 1))[0].axis;
}

std::vector<UOp> buffer_parts(const UOp& b) {
  if (!is_multi(b->device)) return {b};
  auto parts = std::static_pointer_cast<std::vector<UOp>>(payload(b));
  if (!parts) {
    const auto one = [&](uint16_t d) { return buffer(b.dtype(), b.shape()[0], device_name(d)); };
    parts = std::make_shared<std::vector<UOp>>(mapped(devices_of(b->device), one));
    set_payload(b, parts);
  }
  return *parts;
}

UOp view_of_parts(const UOp& b, const Shape& shape, int64_t axis) {
  Dims own(shape.begin(), shape.end());
  const auto n = static_cast<int64_t>(devices_of(b->device).size());
  if (axis >= 0) own[static_cast<size_t>(axis)] /= n;
  const UOp part = reshape(b, own);
  return sized(axis < 0 ? part : unshard(part, axis, n), shape);
}

UOp join_buffers(std::span<const UOp> parts) {
  if (parts.size() == 1) return parts[0];
  const std::string devices = join(mapped(parts, [](const UOp& p) { return std::string(device_name(p->device)); }), ",");
  UOp b = buffer(parts[0].dtype(), parts[0].shape()[0], devices);
  set_payload(b, std::make_shared<std::vector<UOp>>(parts.begin(), parts.end()));
  return b;
}

}  // namespace whit
