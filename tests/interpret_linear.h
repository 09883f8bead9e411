// Evaluation of a LINEAR, instruction by instruction, with all lanes of a value side by side in one array. Only tests need
// it: it is the oracle of lowering.
#pragma once
#include <algorithm>

#include "ir/build.h"
#include "ir/interpret.h"

namespace whit {
namespace linear_detail {

// Where the lanes of a value are.
struct Slots {
  size_t at = 0;
  int64_t n_lanes = 0;  // 0 for a scalar
};

inline const Node* storage_of(const Node* n) {
  while (n->op == Op::After) n = n->src()[0];
  return n;
}

inline int64_t lanes_of(const Node* n) { return n->shape.empty() ? 0 : n->shape.numel(); }

inline Op monoid_op(std::string_view monoid) {
  if (monoid == "add") return Op::Add;
  if (monoid == "mul") return Op::Mul;
  if (monoid == "max") return Op::Max;
  WHIT_CHECK(monoid == "min", "unknown monoid '{}'", monoid);
  return Op::Min;
}

class Linear {
 public:
  Linear(const UOp& linear, std::span<void* const> buffers, const VariableValues& variables)
      : linear_(linear), buffers_(buffers), variables_(variables) {
    place_values();
    match_blocks();
  }

  int64_t n_multiply_adds = 0;

  void run(int64_t first, int64_t last) {
    const std::span<const Node* const> list = linear_->src();
    std::vector<int64_t> ends(list.size(), 0);  // of the loop that begins here
    for (size_t pc = 0; pc < list.size(); ++pc) {
      const Node* n = list[pc];
      switch (n->op) {
        case Op::Range: {
          int64_t from = n->n_src > 1 ? value(n->src()[1], 0).i : 0, to = n->n_src ? value(n->src()[0], 0).i : range_size(n);
          if (axis_type(n) == AxisType::Global) {
            const int64_t offset = global_offset_.at(n);
            from = std::max<int64_t>(first - offset, 0);
            to = std::min(to, last - offset);
          }
          set(n, 0, Scalar::of(n->dtype, from));
          ends[pc] = to;
          if (from >= to) pc = partner_[pc];
          break;
        }
        case Op::EndRange: {
          const size_t begin = partner_[pc];
          const int64_t next = value(list[begin], 0).i + 1;
          if (next == ends[begin]) break;
          set(list[begin], 0, Scalar::of(list[begin]->dtype, next));
          pc = begin;
          break;
        }
        case Op::If:
          if (!value(n->src()[0], 0).truthy()) pc = partner_[pc];
          break;
        case Op::Const:
        case Op::Param:
        case Op::Variable:
        case Op::Lanes:
        case Op::Reg:
        case Op::Scratch:
        case Op::Index:
        case Op::After:
        case Op::EndIf: break;
        default:
          if (n->op == Op::MulAcc) n_multiply_adds += std::max<int64_t>(lanes_of(n), 1);
          execute(n);
      }
    }
  }

 private:
  // Gives every node its lanes, and the leaves their values.
  void place_values() {
    int64_t extent = 0;
    for (const Node* n : linear_->src())
      if (n->op == Op::Range && axis_type(n) == AxisType::Global) {
        global_offset_[n] = extent;
        extent += range_size(n);
      }
    for (const Node* n : toposort(linear_)) {
      if (n->op == Op::Scratch) {
        // NaNs: nobody may read what was not written.
        scratch_[n].resize(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)), std::byte{0xFF});
        continue;
      }
      if (n->op == Op::Param || n->dtype == DType::Void) continue;
      slots_[n] = {values_.size(), lanes_of(n)};
      values_.resize(values_.size() + static_cast<size_t>(std::max<int64_t>(lanes_of(n), 1)));
      if (n->op == Op::Const) {
        set(n, 0, n->arg.is_invalid() ? Scalar::of(n->dtype, int64_t{0}) : scalar_of(UOp(n)));
      } else if (n->op == Op::Variable) {
        const auto it = variables_.find(std::string(n->arg.at(0).as_str()));
        WHIT_CHECK(it != variables_.end(), "variable {} has no value", n->arg.at(0).as_str());
        set(n, 0, Scalar::of(n->dtype, it->second));
      } else if (n->op == Op::Lanes) {
        for (int64_t i = 0; i < lanes_of(n); ++i) set(n, i, Scalar::of(n->dtype, i));
      } else if (n->op == Op::Reg) {
        for (int64_t i = 0; i < std::max<int64_t>(lanes_of(n), 1); ++i) set(n, i, Scalar::of(n->dtype, int64_t{0}));
      }
    }
  }

  void match_blocks() {
    const std::span<const Node* const> list = linear_->src();
    partner_.resize(list.size(), 0);
    std::vector<size_t> open;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i]->op == Op::Range || list[i]->op == Op::If) open.push_back(i);
      if (list[i]->op != Op::EndRange && list[i]->op != Op::EndIf) continue;
      WHIT_CHECK(!open.empty() && list[open.back()] == list[i]->src()[0], "{} that closes another block", name(list[i]->op));
      partner_[i] = open.back();
      partner_[open.back()] = i;
      open.pop_back();
    }
    WHIT_CHECK(open.empty(), "a RANGE or IF of a LINEAR is not closed");
  }

  // Lane `lane` of a value; a scalar is the same in all lanes.
  const Scalar& value(const Node* n, int64_t lane) const {
    const Slots& s = slots_.at(n);
    return values_[s.at + static_cast<size_t>(s.n_lanes ? lane : 0)];
  }
  void set(const Node* n, int64_t lane, const Scalar& v) { values_[slots_.at(n).at + static_cast<size_t>(lane)] = v; }

  void execute(const Node* n) {
    const int64_t n_lanes = std::max<int64_t>(lanes_of(n), 1);
    switch (n->op) {
      case Op::Load:
        for (int64_t lane = 0; lane < n_lanes; ++lane) set(n, lane, load(n, lane));
        return;
      case Op::Store: {
        const Node* index = storage_of(n->src()[0]);
        int64_t lanes = std::max(n_lanes, lanes_of(n->src()[1]));
        if (index->op == Op::Reg) lanes = std::max(lanes, lanes_of(index));
        if (index->op == Op::Index) lanes = std::max(lanes, lanes_of(index));
        for (int64_t lane = 0; lane < lanes; ++lane) store(n, index, lane);
        return;
      }
      case Op::Vec:
        for (int64_t lane = 0; lane < n_lanes; ++lane) set(n, lane, value(n->src()[static_cast<size_t>(lane)], 0));
        return;
      case Op::Lane: set(n, 0, value(n->src()[0], n->arg.as_int())); return;
      case Op::Fold: {
        std::vector<Scalar> lanes;
        for (int64_t lane = 0; lane < lanes_of(n->src()[0]); ++lane) lanes.push_back(value(n->src()[0], lane));
        const Op op = monoid_op(n->arg.as_str());
        for (size_t half = lanes.size() / 2; half > 0; half /= 2)
          for (size_t i = 0; i < half; ++i) {
            const Scalar both[] = {lanes[i], lanes[i + half]};
            lanes[i] = eval_scalar(op, n->dtype, both);
          }
        set(n, 0, lanes.at(0));
        return;
      }
      default: break;
    }
    WHIT_CHECK(is_elementwise(n->op), "{} in a LINEAR", name(n->op));
    for (int64_t lane = 0; lane < n_lanes; ++lane) {
      Scalar src[3];
      for (size_t i = 0; i < n->n_src; ++i) src[i] = value(n->src()[i], lane);
      set(n, lane, eval_scalar(n->op, n->dtype, std::span<const Scalar>(src, n->n_src)));
    }
  }

  struct Place {
    void* memory = nullptr;
    int64_t at = 0;
    bool is_on = true;  // the gate
  };

  Place place_of(const Node* index, int64_t lane, const char* what) {
    WHIT_CHECK(index->op == Op::Index, "{} at {}", what, name(index->op));
    if (index->n_src > 2 && !value(index->src()[2], lane).truthy()) return {nullptr, 0, false};
    const Node* storage = storage_of(index->src()[0]);
    const bool contiguous = lanes_of(index->src()[1]) == 0;
    const int64_t at = value(index->src()[1], lane).i + (contiguous ? lane : 0);
    void* memory = nullptr;
    if (storage->op == Op::Scratch) {
      memory = scratch_.at(storage).data();
    } else {
      const size_t slot = static_cast<size_t>(storage->arg.int_at(0));
      WHIT_CHECK(storage->op == Op::Param && slot < buffers_.size(), "{} at {} of a program with {} buffers", what, name(storage->op),
                 buffers_.size());
      memory = buffers_[slot];
    }
    WHIT_CHECK(at >= 0 && at < storage->shape.numel(), "{} at index {} of {} {}, which has {} elements", what, at, name(storage->op),
               storage->arg.int_at(0), storage->shape.numel());
    return {memory, at, true};
  }

  Scalar load(const Node* n, int64_t lane) {
    const Node* at = storage_of(n->src()[0]);
    if (at->op == Op::Reg) return value(at, lane);
    const Place place = place_of(at, lane, "LOAD");
    return place.is_on ? read_element(n->dtype, place.memory, place.at) : Scalar::of(n->dtype, int64_t{0});
  }

  void store(const Node* n, const Node* index, int64_t lane) {
    const Scalar v = value(n->src()[1], lane);
    if (index->op == Op::Reg) {
      set(index, lane, v);
      return;
    }
    const Place place = place_of(index, lane, "STORE");
    if (place.is_on) write_element(n->src()[1]->dtype, place.memory, place.at, v);
  }

  UOp linear_;
  std::span<void* const> buffers_;
  const VariableValues& variables_;
  std::unordered_map<const Node*, Slots> slots_;
  std::vector<Scalar> values_;
  std::vector<size_t> partner_;  // RANGE <-> ENDRANGE, IF <-> ENDIF
  std::unordered_map<const Node*, int64_t> global_offset_;
  std::unordered_map<const Node*, std::vector<std::byte>> scratch_;
};

}  // namespace linear_detail

/// Runs the iterations [first, last) of the launch space of a LINEAR, as one call of its compiled kernel would; a
/// PROGRAM stands for its LINEAR.
/// Gives the number of multiply-adds.
/// errors: Internal for an index outside its buffer whose gate is true, and for what no LINEAR has
inline int64_t evaluate_linear(const UOp& linear, std::span<void* const> buffers, const VariableValues& variables = {}, int64_t first = 0,
                               int64_t last = INT64_MAX) {
  if (linear.op() == Op::Program) {
    for (const UOp& s : linear.srcs())
      if (s.op() == Op::Linear) return evaluate_linear(s, buffers, variables, first, last);
  }
  WHIT_CHECK(linear.op() == Op::Linear, "expected a LINEAR, got {}", name(linear.op()));
  linear_detail::Linear program(linear, buffers, variables);
  program.run(first, last);
  return program.n_multiply_adds;
}

}  // namespace whit
