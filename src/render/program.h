// What all renderers ask of a LINEAR program before they print it.
#pragma once
#include <unordered_map>

#include "render/renderer.h"

namespace whit::render {

struct LinearProgram {
  UOp linear;
  KernelSignature signature;
  std::vector<const Node*> params;                                ///< in the order of signature.buffers
  std::vector<const Node*> variables;                             ///< in the order of signature.variables
  std::vector<const Node*> scratch;                               ///< by id
  std::vector<const Node*> regs;                                  ///< by id
  std::unordered_map<int64_t, int64_t> scratch_offset;            ///< id -> bytes
  std::unordered_map<const Node*, int64_t> global_offset;         ///< GLOBAL range -> its place in the launch space
  std::unordered_map<const Node*, std::vector<int64_t>> spreads;  ///< scalar -> lane counts in which it is used
  int64_t n_zero_bytes = 0;                                       ///< the widest load with a scalar gate
};

LinearProgram analyze(const UOp& program);

/// Lanes of a value: 0 for a scalar.
inline int64_t lanes_of(const Node* n) { return n->shape.empty() ? 0 : n->shape[0]; }
inline int bit_width(DType dt) { return dt == DType::Bool ? 1 : 8 * element_bytes(dt); }

/// The PARAM, SCRATCH or REG below any AFTERs.
const Node* storage_of(const Node* n);

/// An access by INDEX or of a register, taken apart.
struct Access {
  const Node* storage;          ///< PARAM, SCRATCH or REG
  const Node* index = nullptr;  ///< null for a REG
  const Node* gate = nullptr;   ///< null when there is none
  int64_t lanes = 0;            ///< of the value moved; 0 for a scalar
  bool contiguous = false;      ///< lanes lie side by side from a scalar index
  /// Each lane has an address or a condition of its own.
  bool lane_by_lane() const { return lanes > 0 && (!contiguous || (gate && lanes_of(gate) > 0)); }
};
Access access_of(const Node* load_or_store);

// ---- text tables
// A row says how an op looks for a class of dtypes. `{0}`, `{1}`, `{2}` are the operands; every renderer adds
// placeholders of its own. The first row that fits wins.

enum Class : uint8_t { kFloat = 1, kHalf = 2, kSigned = 4, kUnsigned = 8, kBool = 16, kInt = kSigned | kUnsigned };
Class class_of(DType dt);

/// What rows ask about the operands beyond their dtype.
using When = bool (*)(const Node* n);
bool divisor_is_safe(const Node* n);    ///< neither 0 nor -1
bool shift_is_in_range(const Node* n);  ///< within the width
bool right_is_a_number(const Node* n);  ///< the second operand is a constant and not NaN

// What ops are on bools; a bool is one bit wide, so any shift by 1 empties it.
inline constexpr OpSet kOrOfBools{Op::Add, Op::Max, Op::Or}, kAndOfBools{Op::Mul, Op::Min, Op::Cdiv, Op::And},
    kXorOfBools{Op::Sub, Op::Xor, Op::CmpNe}, kAndNotOfBools{Op::Cmod, Op::Shl, Op::Shr}, kMaxMin{Op::Max, Op::Min};

struct TextRow {
  OpSet ops;
  uint8_t classes;  ///< of the first value operand
  When when;        ///< null: always
  const char* text;
  const char* vector_text = nullptr;  ///< null: as text, or lane by lane, as the renderer does it
};
/// The row for an op over operands of `dt`; `n` null: only rows without a condition. Null when there is none.
const TextRow* find_row(std::span<const TextRow> table, Op op, DType dt, const Node* n);

/// What stands for the placeholders of a row.
struct Filler {
  Op op;
  DType dtype;    ///< of the operands
  int64_t lanes;  ///< 0 for scalars
  SmallVec<std::string, 3> operand{};
  Filler(Op o, DType dt, int64_t n, std::span<const std::string> operands) : op(o), dtype(dt), lanes(n), operand(operands) {}
  virtual void append(std::string& out, std::string_view key) const = 0;

 protected:
  ~Filler() = default;
};
/// Appends `text` with every `{key}` filled in; `indent` stands before each line but the first.
void expand(std::string& out, std::string_view text, const Filler& filler, std::string_view indent = "");

/// The bits of a CONST as its dtype stores them, sign extended for ints; 0 for Invalid.
uint64_t constant_bits(const Node* constant);

/// A VEC of one scalar.
bool is_splat(const Node* vec);

/// Op::CmpLt and the like work on their sources' dtype, WHERE on that of its second source.
inline DType operand_dtype(const Node* n) { return n->src()[n->op == Op::Where ? 1 : 0]->dtype; }

}  // namespace whit::render
