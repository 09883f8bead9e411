// Evaluation of tensor graphs. A value is a strided view of elements that are already decoded, so that movement ops
// only compute strides; RESHAPE of what is not contiguous, PAD and the like copy. Nodes are evaluated in the order of
// their sources and a value goes with its last use.
//
// A CALL is evaluated in a frame of its own that binds PARAMs; frames nest as calls do, which is the only recursion.
#include "interpret_tensor.h"

#include <algorithm>
#include <unordered_set>

#include "ir/build.h"

namespace whit {
namespace {

constexpr int kMaxCallDepth = 1000;

union Element {
  double f;
  int64_t i;
};

struct Value {
  DType dtype = DType::Void;
  Shape shape{};
  Dims strides{};  // in elements
  int64_t offset = 0;
  std::shared_ptr<std::vector<Element>> data{};

  Element& operator[](int64_t at) const { return (*data)[static_cast<size_t>(at)]; }
  Scalar scalar(int64_t at) const {
    Scalar s;
    s.dtype = dtype;
    const Element& e = (*this)[at];
    if (is_float(dtype)) s.f = e.f;
    else s.i = e.i;
    return s;
  }
};

Element element_of(const Scalar& s) {
  Element e;
  if (is_float(s.dtype)) e.f = s.f;
  else e.i = s.i;
  return e;
}

Dims row_major_strides(std::span<const int64_t> shape) {
  Dims strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// A fresh contiguous value; its elements are 0.
Value make_value(DType dtype, const Shape& shape) {
  Value v{dtype, shape, row_major_strides(shape), 0, std::make_shared<std::vector<Element>>()};
  Element zero;
  zero.i = 0;  // 0.0 has the same bits
  v.data->resize(static_cast<size_t>(shape.numel()), zero);
  return v;
}

// Walks the positions of a view in row-major order.
class Walk {
 public:
  explicit Walk(const Value& v) : Walk(v, v.shape) {}
  // Of a scalar: the same position for all of `shape`.
  Walk(const Value& v, const Shape& shape) : shape_(shape), at_(shape.size(), 0), position_(v.offset) {
    if (v.shape.empty()) strides_.resize(shape.size(), 0);
    else strides_ = v.strides;
  }
  int64_t position() const { return position_; }
  void next() {
    for (size_t axis = at_.size(); axis-- > 0;) {
      position_ += strides_[axis];
      if (++at_[axis] < shape_[axis]) return;
      position_ -= strides_[axis] * shape_[axis];
      at_[axis] = 0;
    }
  }
  const Dims& at() const { return at_; }

 private:
  const Shape& shape_;
  Dims at_, strides_{};
  int64_t position_;
};

// Calls f(number, walk) for each element.
template <class F> void for_each_element(const Value& v, F&& f) {
  Walk walk(v);
  for (int64_t i = 0, numel = v.shape.numel(); i < numel; ++i, walk.next()) f(i, walk);
}

Value contiguous(const Value& v) {
  if (v.offset == 0 && v.strides == row_major_strides(v.shape) && v.data->size() == static_cast<size_t>(v.shape.numel())) return v;
  Value out = make_value(v.dtype, v.shape);
  for_each_element(v, [&](int64_t i, const Walk& at) { out[i] = v[at.position()]; });
  return out;
}

Value read_memory(DType dtype, const Shape& shape, const void* raw) {
  Value v = make_value(dtype, shape);
  for (size_t i = 0; i < v.data->size(); ++i) (*v.data)[i] = element_of(read_element(dtype, raw, static_cast<int64_t>(i)));
  return v;
}

// The elements as they lie in memory, and at least one byte.
std::vector<std::byte> bytes_of(const Value& v) {
  std::vector<std::byte> bytes(std::max<size_t>(1, static_cast<size_t>(v.shape.numel() * element_bytes(v.dtype))));
  for_each_element(v, [&](int64_t i, const Walk& at) { write_element(v.dtype, bytes.data(), i, v.scalar(at.position())); });
  return bytes;
}

// A SHRINK or PAD with symbolic axes. What is past x, or past the size that counts, is `outside`.
Value boxed(const Node* n, const Value& x, const VariableValues& variables, Element outside) {
  const bool pads = n->op == Op::Pad;
  struct Axis {
    int64_t begin, size;
  };
  SmallVec<Axis, 8> axes;
  for (size_t a = 0; a < n->shape.size(); ++a) {
    const auto [begin, size] = box_of(n, a);
    axes.push_back({with_values(begin, variables).number(), with_values(pads ? size_of(x.shape, a) : size, variables).number()});
  }
  Value v = make_value(x.dtype, n->shape);
  Walk walk(v);
  for (Element& e : *v.data) {
    int64_t from = x.offset;
    bool inside = true;
    for (size_t a = 0; a < axes.size(); ++a) {
      const int64_t to = walk.at()[a], at = pads ? to - axes[a].begin : to + axes[a].begin;
      inside &= 0 <= at && at < x.shape[a] && (pads ? at : to) < axes[a].size;
      from += at * x.strides[a];
    }
    e = inside ? (*x.data)[static_cast<size_t>(from)] : outside;
    walk.next();
  }
  return v;
}

// A movement op with shape `out`.
Value move(const Node* n, const Value& x, const VariableValues& variables, Element outside = {.i = 0}) {
  const auto a = n->arg.as_ints();
  Value v = x;
  v.shape = n->shape;
  switch (n->op) {
    case Op::Reshape:
      v = contiguous(x);
      v.shape = n->shape;
      v.strides = row_major_strides(n->shape);
      return v;
    case Op::Expand:
      for (size_t i = 0; i < a.size(); ++i)
        if (x.shape[i] != n->shape[i]) v.strides[i] = 0;
      return v;
    case Op::Permute:
      for (size_t i = 0; i < a.size(); ++i) v.strides[i] = x.strides[static_cast<size_t>(a[i])];
      return v;
    case Op::Shrink:
      if (n->n_src > 1) return boxed(n, x, variables, outside);
      for (size_t i = 0; i < v.strides.size(); ++i) v.offset += v.strides[i] * a[2 * i];
      return v;
    case Op::Flip:
      for (const int64_t axis : a) {
        int64_t& stride = v.strides[static_cast<size_t>(axis)];
        v.offset += stride * (x.shape[static_cast<size_t>(axis)] - 1);
        stride = -stride;
      }
      return v;
    case Op::Window: {
      const size_t axis = static_cast<size_t>(a[0]);
      const int64_t stride = v.strides[axis];
      v.strides[axis] = stride * a[2];
      v.strides.push_back(stride * a[3]);
      return v;
    }
    case Op::Pad: {
      if (n->n_src > 1) return boxed(n, x, variables, outside);
      v = make_value(x.dtype, n->shape);
      for_each_element(x, [&](int64_t, const Walk& from) {
        int64_t to = 0;
        for (size_t axis = 0; axis < v.strides.size(); ++axis) to += (from.at()[axis] + a[2 * axis]) * v.strides[axis];
        v[to] = x[from.position()];
      });
      return v;
    }
    case Op::Unwindow: {
      const size_t axis = static_cast<size_t>(a[0]);
      const DType sum_dtype = is_float(x.dtype) ? DType::Float64 : x.dtype;
      v = make_value(x.dtype, n->shape);
      for_each_element(x, [&](int64_t, const Walk& from) {
        int64_t to = 0;
        for (size_t d = 0; d < v.strides.size(); ++d) {
          const int64_t at = d == axis ? from.at()[d] * a[2] + from.at().back() * a[3] : from.at()[d];
          to += at * v.strides[d];
        }
        Scalar src[] = {v.scalar(to), x.scalar(from.position())};
        for (Scalar& s : src) s.dtype = sum_dtype;
        v[to] = element_of(eval_scalar(Op::Add, sum_dtype, src));
      });
      if (is_float(x.dtype))
        for (Element& e : *v.data) e.f = round_to(x.dtype, e.f);
      return v;
    }
    default: raise(ErrorKind::Internal, fmt::format("{} cannot be evaluated", name(n->op)));
  }
}

Value elementwise(const Node* n, std::span<const Value> src) {
  Value out = make_value(n->dtype, n->shape);
  SmallVec<Walk, 3> walks;
  for (const Value& s : src) walks.emplace_back(s, n->shape);
  Scalar scalars[3];
  for (Element& e : *out.data) {
    for (size_t i = 0; i < src.size(); ++i) {
      scalars[i] = src[i].scalar(walks[i].position());
      walks[i].next();
    }
    e = element_of(eval_scalar(n->op, n->dtype, std::span<const Scalar>(scalars, src.size())));
  }
  return out;
}

Value reduce(const Node* n, const Value& x) {
  const std::string_view monoid = n->arg.at(0).as_str();
  const DType dtype = is_float(n->dtype) ? DType::Float64 : n->dtype;
  Value out = make_value(dtype, n->shape);
  std::vector<bool> filled(out.data->size(), false);
  // The result's position moves along the axes that stay.
  Value target = out;
  target.shape = x.shape;
  for (size_t i = 0; i < target.strides.size(); ++i)
    if (n->shape[i] != x.shape[i]) target.strides[i] = 0;
  Walk from(x), to(target);
  for (int64_t i = 0, numel = x.shape.numel(); i < numel; ++i, from.next(), to.next()) {
    const size_t at = static_cast<size_t>(to.position());
    Scalar v = x.scalar(from.position());
    v.dtype = dtype;
    Scalar before = filled[at] ? out.scalar(to.position()) : monoid_identity(monoid, n->dtype);
    before.dtype = dtype;
    v = eval_scalar(monoid_op(monoid), dtype, std::vector{before, v});
    (*out.data)[at] = element_of(v);
    filled[at] = true;
  }
  out.dtype = n->dtype;
  for (size_t i = 0; i < filled.size(); ++i) {
    Element& e = (*out.data)[i];
    if (!filled[i]) e = element_of(monoid_identity(monoid, n->dtype));
    else if (is_float(n->dtype)) e.f = round_to(n->dtype, e.f);
  }
  return out;
}

Value stack(const Node* n, std::span<const Value> src) {
  Value out = make_value(n->dtype, n->shape);
  int64_t to = 0;
  for (const Value& s : src) for_each_element(s, [&](int64_t, const Walk& from) { out[to++] = s[from.position()]; });
  return out;
}

Value gather(const Node* n, const Value& x, const Value& indices) {
  const Value rows = contiguous(x), idx = contiguous(indices);
  Value out = make_value(n->dtype, n->shape);
  const int64_t n_rows = x.shape[0], row = n_rows ? x.shape.numel() / n_rows : 0;
  for (size_t i = 0; i < idx.data->size(); ++i) {
    const int64_t from = (*idx.data)[i].i;
    if (from < 0 || from >= n_rows) continue;
    std::copy_n(rows.data->begin() + from * row, row, out.data->begin() + static_cast<int64_t>(i) * row);
  }
  return out;
}

Value scatter(const Node* n, const Value& base, const Value& indices, const Value& x) {
  const Value idx = contiguous(indices), src = contiguous(x);
  Value out = contiguous(base);
  out.data = std::make_shared<std::vector<Element>>(*out.data);
  const bool add = n->arg.as_str() == "add";
  const int64_t n_rows = base.shape[0], row = n_rows ? base.shape.numel() / n_rows : 0;
  for (size_t i = 0; i < idx.data->size(); ++i) {
    const int64_t to = (*idx.data)[i].i;
    if (to < 0 || to >= n_rows) continue;
    for (int64_t j = 0; j < row; ++j) {
      Scalar v = src.scalar(static_cast<int64_t>(i) * row + j);
      if (add) {
        const Scalar both[] = {out.scalar(to * row + j), v};
        v = eval_scalar(Op::Add, n->dtype, both);
      }
      (*out.data)[static_cast<size_t>(to * row + j)] = element_of(v);
    }
  }
  return out;
}

// Memory that a STORE writes, or that an AFTER reads again.
struct Target {
  const Node* root = nullptr;  // BUFFER or PARAM; null when the node is a computed value
  void* raw = nullptr;
  Value positions{};  // of the view's elements in the memory
};

using Values = std::vector<Value>;  // one, or those of a TUPLE

struct Frame {
  Frame* caller = nullptr;
  const Node* call = nullptr;
  int depth = 0;
  std::unordered_map<const Node*, Values> values{};
  std::unordered_set<const Node*> bases{};  // computed values that have memory of their own, since they are stored into
  std::unordered_map<const Node*, std::vector<std::byte>> own_memory{};
};

class Evaluator {
 public:
  explicit Evaluator(const HostInputs& inputs) : inputs_(inputs) {}

  std::vector<Values> run(Frame& frame, std::span<const UOp> roots) {
    WHIT_CHECK(frame.depth < kMaxCallDepth, "CALLs nest deeper than {}", kMaxCallDepth);
    const NodeList order = toposort_outside_calls(roots);
    std::unordered_map<const Node*, int64_t> n_uses;
    for (const Node* n : order)
      for (const Node* s : n->src()) ++n_uses[s];
    for (const UOp& root : roots) ++n_uses[root.node()];
    find_bases(frame, order);
    for (const Node* base : frame.bases) ++n_uses[base];
    for (const Node* n : order) {
      frame.values[n] = evaluate(frame, n);
      for (const Node* s : n->src())
        if (--n_uses[s] == 0) frame.values.erase(s);
    }
    std::vector<Values> out;
    for (const UOp& root : roots) out.push_back(frame.values.at(root.node()));
    return out;
  }

 private:
  const Value& value(Frame& frame, const Node* n) { return frame.values.at(n).at(0); }
  Values values_of(Frame& frame, std::span<const Node* const> nodes) {
    Values all;
    for (const Node* n : nodes) all.push_back(value(frame, n));
    return all;
  }

  void* memory(const Node* n) {
    const auto it = inputs_.memory.find(n);
    if (it != inputs_.memory.end()) return it->second;
    WHIT_CHECK(n->op == Op::Buffer, "PARAM {} has no memory", n->arg.int_at(0));
    std::vector<std::byte>& own = own_memory_[n];
    own.resize(static_cast<size_t>(n->shape.numel()) * static_cast<size_t>(n_bytes(n->dtype)) + 1);
    return own.data();
  }

  // The argument that a PARAM of this frame stands for; null at the top.
  static const Node* argument(const Frame& frame, const Node* param) {
    if (!frame.caller) return nullptr;
    const size_t i = static_cast<size_t>(param->arg.int_at(0)) + 1;
    WHIT_CHECK(i < frame.call->n_src, "PARAM {} of a CALL with {} arguments", i - 1, frame.call->n_src - 1);
    return frame.call->src()[i];
  }

  // One step from a view towards its memory, with the frame it leads to; the node itself where the memory is.
  static const Node* step_down(Frame*& frame, const Node* n) {
    if (frame->bases.contains(n)) return n;
    if (n->op == Op::Param) {
      const Node* bound = argument(*frame, n);
      if (bound) frame = frame->caller;
      return bound ? bound : n;
    }
    const bool moves =
        is_movement(n->op) && n->op != Op::Stack && n->op != Op::Pad && n->op != Op::Unwindow && n->op != Op::Expand && n->op != Op::Window;
    const bool same_width = n->op == Op::Bitcast && n_bytes(n->dtype) == n_bytes(n->src()[0]->dtype);
    const bool passes = n->op == Op::After || n->op == Op::Detach || n->op == Op::ContiguousBackward;
    return moves || same_width || passes ? n->src()[0] : n;
  }

  // What an AFTER of this frame speaks of and what is no memory already becomes memory of its own.
  static void find_bases(Frame& frame, const NodeList& order) {
    for (const Node* n : order) {
      if (n->op != Op::After) continue;
      const Node* x = n->src()[0];
      while (x->op == Op::After) x = x->src()[0];
      Frame* f = &frame;
      const Node* root = x;
      for (const Node* next = step_down(f, root); next != root; next = step_down(f, root)) root = next;
      if (root->op != Op::Buffer && !(root->op == Op::Param && !f->caller) && !f->bases.contains(root)) frame.bases.insert(x);
    }
  }

  // No memory: root is null.
  Target find_target(Frame* frame, const Node* n) {
    std::vector<const Node*> views;
    for (;;) {
      const Node* const at = n;
      n = step_down(frame, n);
      if (n == at) break;
      if (is_movement(at->op)) views.push_back(at);
    }
    Target target{n, nullptr, {}};
    if (frame->bases.contains(n)) {
      std::vector<std::byte>& own = frame->own_memory[n];
      if (own.empty()) own = bytes_of(value(*frame, n));
      target.raw = own.data();
    } else if (n->op == Op::Buffer || n->op == Op::Param) {
      target.raw = memory(n);
    } else {
      return {};
    }
    target.positions = make_value(DType::Int64, n->shape);
    for (size_t i = 0; i < target.positions.data->size(); ++i) (*target.positions.data)[i].i = static_cast<int64_t>(i);
    // -1: outside of what counts
    for (size_t i = views.size(); i-- > 0;) target.positions = move(views[i], target.positions, inputs_.variables, {.i = -1});
    return target;
  }

  void store(Frame& frame, const Node* n) {
    const Node* view = n->src()[0];
    const Target target = find_target(&frame, view);
    WHIT_CHECK(target.root, "STORE to {}, which is neither a view of a BUFFER nor what an AFTER stands for", name(view->op));
    const Value& v = value(frame, n->src()[1]);
    WHIT_CHECK(v.shape.empty() || v.shape == view->shape, "STORE of {} to {}", v.shape.str(), view->shape.str());
    Walk to(target.positions), from(v, target.positions.shape);
    for (int64_t i = 0, numel = target.positions.shape.numel(); i < numel; ++i, to.next(), from.next())
      if (const int64_t at = target.positions.scalar(to.position()).i; at >= 0) write_element(view->dtype, target.raw, at, v.scalar(from.position()));
  }

  // The content of x's memory as it is now.
  Values after(Frame& frame, const Node* n) {
    const Node* x = n->src()[0];
    const Target target = find_target(&frame, x);
    if (!target.root) return frame.values.at(x);
    Value v = make_value(n->dtype, n->shape);
    for_each_element(target.positions, [&](int64_t i, const Walk& walk) {
      if (const int64_t at = target.positions[walk.position()].i; at >= 0) v[i] = element_of(read_element(n->dtype, target.raw, at));
    });
    return {v};
  }

  Values call(Frame& frame, const Node* n) {
    const Node* body = n->src()[0];
    if (body->op == Op::Sink && body->n_src && is_kernel(body)) {
      std::vector<void*> buffers;
      for (size_t i = 1; i < n->n_src; ++i) {
        const Target target = find_target(&frame, n->src()[i]);
        WHIT_CHECK(target.root, "argument {} of a kernel is {}, not memory", i - 1, name(n->src()[i]->op));
        buffers.push_back(target.raw);
      }
      evaluate_kernel(UOp(body), buffers, inputs_.variables);
      return {Value()};
    }
    Frame inner{&frame, n, frame.depth + 1};
    const UOp root(body);
    return run(inner, std::span(&root, 1))[0];
  }

  static bool is_kernel(const Node* sink) {
    const Node* s = sink->src()[0];
    return s->op == Op::End || (s->op == Op::Store && s->src()[0]->op == Op::Index);
  }

  Values evaluate(Frame& frame, const Node* n) {
    const auto src = n->src();
    switch (n->op) {
      case Op::Const: {
        Value v = make_value(n->dtype, {});
        if (!n->arg.is_invalid()) v[0] = element_of(scalar_of(UOp(n)));
        return {v};
      }
      case Op::Bind:
      case Op::Variable: {
        const auto it = inputs_.variables.find(std::string(n->op == Op::Variable ? n->arg.at(0).as_str() : ""));
        WHIT_CHECK(n->op == Op::Bind || it != inputs_.variables.end(), "variable {} has no value", n->arg.at(0).as_str());
        Value v = make_value(n->dtype, {});
        v[0] = element_of(Scalar::of(n->dtype, n->op == Op::Bind ? n->arg.as_int() : it->second));
        return {v};
      }
      case Op::Lanes: {
        Value v = make_value(n->dtype, n->shape);
        for (size_t i = 0; i < v.data->size(); ++i) (*v.data)[i] = element_of(Scalar::of(n->dtype, static_cast<int64_t>(i)));
        return {v};
      }
      case Op::Param:
      case Op::Buffer:
        if (const Node* bound = n->op == Op::Param ? argument(frame, n) : nullptr) return frame.caller->values.at(bound);
        return {read_memory(n->dtype, n->shape, memory(n))};
      case Op::Bitcast: return {read_memory(n->dtype, n->shape, bytes_of(value(frame, src[0])).data())};
      case Op::Contiguous:
      case Op::ContiguousBackward:
      case Op::Detach:
      case Op::Copy: return frame.values.at(src[0]);
      case Op::Stack: return {stack(n, values_of(frame, src))};
      case Op::Gather: return {gather(n, value(frame, src[0]), value(frame, src[1]))};
      case Op::Scatter: return {scatter(n, value(frame, src[0]), value(frame, src[1]), value(frame, src[2]))};
      case Op::Reduce: WHIT_CHECK(n->n_src == 1, "a REDUCE over ranges in a tensor graph"); return {reduce(n, value(frame, src[0]))};
      case Op::Store: store(frame, n); return {Value()};
      case Op::After: return after(frame, n);
      case Op::Sink:
      case Op::Linear: return {Value()};
      case Op::Tuple: return values_of(frame, src);
      case Op::GetTuple: {
        const Values& all = frame.values.at(src[0]);
        const size_t i = static_cast<size_t>(n->arg.as_int());
        WHIT_CHECK(i < all.size(), "GETTUPLE {} of {} values", i, all.size());
        return {all[i]};
      }
      case Op::Call: return call(frame, n);
      default: break;
    }
    if (is_movement(n->op)) return {move(n, value(frame, src[0]), inputs_.variables)};
    WHIT_CHECK(is_elementwise(n->op), "{} cannot be evaluated in a tensor graph", name(n->op));
    return {elementwise(n, values_of(frame, src))};
  }

  const HostInputs& inputs_;
  std::unordered_map<const Node*, std::vector<std::byte>> own_memory_;
};

}  // namespace

std::vector<HostTensor> evaluate_tensor(std::span<const UOp> roots, const HostInputs& inputs) {
  Frame top;
  std::vector<HostTensor> out;
  for (const Values& values : Evaluator(inputs).run(top, roots)) {
    const Value& v = values.at(0);
    if (v.dtype == DType::Void) {
      out.emplace_back();
      continue;
    }
    out.push_back({v.dtype, v.shape, bytes_of(v)});
    out.back().bytes.resize(static_cast<size_t>(v.shape.numel() * element_bytes(v.dtype)));
  }
  return out;
}

HostTensor evaluate_tensor(const UOp& root, const HostInputs& inputs) { return std::move(evaluate_tensor(std::span(&root, 1), inputs)[0]); }

}  // namespace whit
