#include "engine/ranges.h"

#include <algorithm>
#include <map>
#include <ranges>

#include "base/lists.h"
#include "engine/buffers.h"
#include "engine/capture.h"
#include "engine/realize.h"
#include "ir/build.h"
#include "runtime/device.h"
#include "schedule/graph.h"
#include "schedule/multi.h"

namespace whit::engine {
namespace {

bool is_identity(Op op) { return op == Op::Detach || op == Op::ContiguousBackward || op == Op::Contiguous; }

// What lies below a view, as far as it can be moved.
bool is_end(const Node* n) { return n->device == 0 || !(is_movement(n->op) || is_identity(n->op) || n->op == Op::Bitcast) || is_realized(n); }

// A view that is `shape` elements in order, from a byte of a BUFFER on.
struct Range {
  UOp buffer{};
  int64_t offset = 0;
  DType dtype = DType::Void;
  Shape shape{};

  BufferPtr memory() const { return Buffer::view(buffer_of(buffer), offset, shape.numel() * n_bytes(dtype)); }
};

// A view: a range, or else its value on the other device.
struct Moved {
  Range range{};
  UOp value{};
};

// True when the op shows the elements of a range in the same order: all of them, but for SHRINK.
bool keeps_order(const Node* n, const Shape& in) {
  switch (n->op) {
    case Op::Reshape:
    case Op::Bitcast: return true;
    case Op::Expand: return n->shape.numel() == in.numel();
    case Op::Permute:
      return std::ranges::is_sorted(n->arg.as_ints() | std::views::filter([&](int64_t a) { return in[static_cast<size_t>(a)] != 1; }));
    default: return false;
  }
}

UOp again(const Node* n, std::span<const UOp> src) {
  return n->op == Op::Reshape ? reshape(src[0], n->shape) : UOp::make(n->op, n->dtype, src, n->arg);
}

class CopyRanges {
 public:
  // The value of COPY(x), or null when it stays as it is.
  UOp moved_copy(const Node* copy, const UOp& x) {
    if (x.shape().numel() == 0 || is_buffer_view(x) || !holds_data_only(x->device)) return {};
    Moved m = follow(copy, x);
    return m.value || m.range.buffer ? value(copy, m) : UOp();
  }

  // x on a device where kernels run.
  UOp on(uint16_t device, const UOp& x) {
    const UOp copy = UOp::make(Op::Copy, x.dtype(), {x}, Arg(device_name(device)));
    const UOp moved = moved_copy(copy.node(), x);
    return moved ? moved : copy;
  }

  bool holds_data_only(uint16_t device) {
    if (!device || is_multi(device)) return false;
    const auto [it, fresh] = holds_data_only_.try_emplace(device, false);
    if (fresh) it->second = is_storage_only(device_name(device));
    return it->second;
  }

  // Nothing for what is computed.
  static Moved follow(const Node* copy, const UOp& x) {
    sched::NodeIndex index;
    const NodeList order = sched::collect(std::span(&x, 1), index, is_end);
    std::vector<Moved> moved(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const Node* n = order[i];
      if (is_end(n)) {
        if (!end(copy, n, moved[i])) return {};
        continue;
      }
      Moved& first = moved[static_cast<size_t>(index.find(n->src_begin()[0]))];
      if (is_identity(n->op)) {
        moved[i] = first;
      } else if (first.range.buffer && keeps_order(n, first.range.shape)) {
        moved[i].range = {first.range.buffer, first.range.offset, n->dtype, n->shape};
      } else if (first.range.buffer && n->op == Op::Shrink && n->n_src == 1) {
        moved[i] = shrunk(copy, n, first.range);
      } else {
        moved[i].value = again(n, mapped(n->src(), [&](const Node* s) { return value(copy, moved[static_cast<size_t>(index.find(s))]); }));
      }
    }
    return moved.back();
  }

 private:
  static bool end(const Node* copy, const Node* n, Moved& to) {
    if (n->device == 0) return to.value = UOp(n), true;
    const UOp where = n->op == Op::Buffer ? UOp(n) : realized(UOp(n));
    if (!where || !is_buffer_view(where)) return false;
    const UOp b = buffer_below(where);
    const Recorder* const recorder = current_recorder;
    if (recorder && recorder->is_input(*buffer_of(b))) to.value = reshape(UOp::make(Op::Copy, b.dtype(), {b}, copy->arg), n->shape);
    else to.range = {b, 0, n->dtype, n->shape};
    return true;
  }

  // All axes before the first that is left have one element, so what is cut from that one is cut from the ends.
  static Moved shrunk(const Node* copy, const Node* n, const Range& in) {
    const size_t rank = in.shape.size();
    Moved out{in, {}};
    Dims rest, dims(in.shape.begin(), in.shape.end());
    int64_t stride = in.shape.numel() * n_bytes(in.dtype);
    bool outer = true, whole = true;
    for (size_t a = 0; a < rank; ++a) {
      const int64_t begin = n->arg.int_at(2 * a), end = n->arg.int_at(2 * a + 1);
      stride = in.shape[a] > 0 ? stride / in.shape[a] : 0;
      if (outer) {
        out.range.offset += begin * stride;
        dims[a] = end - begin;
      }
      rest.push_back(outer ? 0 : begin);
      rest.push_back(outer ? end - begin : end);
      whole &= outer || end - begin == in.shape[a];
      outer &= end - begin == 1;
    }
    out.range.shape = Shape(dims);
    if (whole) return out;
    out.value = shrink(value(copy, out), rest);
    out.range = {};
    return out;
  }

  // On the other device. A range is copied there, once for all that is built on it.
  static const UOp& value(const Node* copy, Moved& m) {
    if (m.value) return m.value;
    const Range& r = m.range;
    UOp from = r.buffer;
    if (const int64_t n = r.shape.numel(); r.dtype != from.dtype() || n != from.shape()[0]) from = buffer_node(r.dtype, n, r.memory());
    return m.value = reshape(UOp::make(Op::Copy, r.dtype, {from}, copy->arg), r.shape);
  }

  std::map<uint16_t, bool> holds_data_only_{};
};

}  // namespace

std::vector<UOp> copy_ranges(std::span<const UOp> roots) {
  CopyRanges pass;
  sched::NodeIndex index;
  const NodeList order = sched::collect(roots, index, is_realized);
  std::vector<UOp> done(order.size()), src;
  for (size_t i = 0; i < order.size(); ++i) {
    const Node* n = order[i];
    done[i] = UOp(n);
    if (is_realized(n) && pass.holds_data_only(n->device)) done[i] = realized(done[i]);  // elsewhere
    if (is_realized(n) || n->n_src == 0) continue;
    src.clear();
    const bool is_view = (is_movement(n->op) && n->op != Op::Stack) || is_identity(n->op) || n->op == Op::Bitcast || n->op == Op::Copy;
    for (const Node* s : n->src()) src.push_back(done[static_cast<size_t>(index.find(s))]);
    if (const auto kernel_device = std::ranges::find_if(src, [&](const UOp& s) { return s->device && !pass.holds_data_only(s->device); }); !is_view) {
      const uint16_t device = kernel_device == src.end() ? default_device_id() : (*kernel_device)->device;
      for (UOp& s : src)
        if (pass.holds_data_only(s->device)) s = pass.on(device, s);
    }
    const bool moves = n->op == Op::Reshape && src[0].node() != n->src()[0];
    done[i] = moves ? reshape(src[0], n->shape) : UOp(n).with_src(src);
    if (n->op != Op::Copy) continue;
    // Nothing goes to a file from here: what stands for a value there is computed where its sources are.
    if (is_file(device_name(n->device))) done[i] = UOp::make(Op::Contiguous, n->dtype, {src[0]});
    else if (UOp u = pass.moved_copy(n, src[0])) done[i] = std::move(u);
    else if (pass.holds_data_only(n->src()[0]->device) && src[0]->device == n->device) done[i] = src[0];
  }
  std::vector<UOp> out;
  for (const UOp& r : roots) {
    out.push_back(done[static_cast<size_t>(index.find(r.node()))]);
    if (pass.holds_data_only(out.back()->device) && !is_buffer_view(out.back())) out.back() = pass.on(default_device_id(), out.back());
  }
  return out;
}

BufferPtr part_of_memory(const UOp& view) {
  const UOp copy = UOp::make(Op::Copy, view.dtype(), {view}, Arg(device_name(view->device)));
  const Moved m = CopyRanges::follow(copy.node(), view);
  return m.range.buffer ? m.range.memory() : nullptr;
}

}  // namespace whit::engine
