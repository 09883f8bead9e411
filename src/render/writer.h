// The walk over a LINEAR that every language shares: names of values, spreading of scalars, rows of the text table. What a
// language adds is how constants, loops, memory and casts look.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "base/small_vec.h"
#include "render/program.h"

namespace whit::render {

/// The texts of items 0 .. n-1, with commas between them.
template <class Fn> std::string listed(int64_t n, Fn&& item) {
  std::string out;
  for (int64_t i = 0; i < n; ++i) out += (i ? ", " : "") + item(i);
  return out;
}

class Writer {
 public:
  Writer& operator=(Writer&&) = delete;  // nor is it copied

 protected:
  /// `prefix` stands before every name, `language` is what errors call it.
  Writer(const UOp& program, const char* language, std::span<const TextRow> rows, const char* prefix)
      : p_(analyze(program)), language_(language), rows_(rows), prefix_(prefix) {}
  virtual ~Writer() = default;
  /// Writes all nodes of the list to body_.
  void walk();

  // ---- text
  template <class... T> void line(fmt::format_string<T...> f, T&&... args) {
    body_.append(static_cast<size_t>(2 * depth_), ' ');
    fmt::format_to(std::back_inserter(body_), f, std::forward<T>(args)...);
    body_ += '\n';
  }
  std::string fresh(const char* stem) { return fmt::format("{}{}{}", prefix_, stem, n_names_++); }

  // ---- values
  /// From here on the node is called `name`; its lanes are spread where somebody needs them.
  void bind(const Node* n, const std::string& name);
  void define(const Node* n, const std::string& text) { bind(n, named(n->dtype, lanes_of(n), text)); }
  /// The node as an operand of `lanes` lanes (0: a scalar).
  std::string operand(const Node* n, int64_t lanes);
  std::string base_of(const Node* storage) const;
  const TextRow& must_find_row(Op op, DType dt, const Node* n) const;

  // ---- what a language says
  virtual std::string constant_text(DType dt, int64_t lanes, uint64_t bits) = 0;
  virtual std::string lanes_text(DType dt, int64_t lanes) = 0;  ///< 0, 1, ...
  virtual std::string spread(DType dt, int64_t lanes, const std::string& scalar) = 0;
  /// A name for the value of a text; the text itself where that is a name.
  virtual std::string named(DType dt, int64_t lanes, const std::string& text) = 0;
  /// The text of a row. A WHERE may choose between vectors by a scalar.
  virtual std::string apply(const TextRow& row, Op op, DType dt, int64_t lanes, std::span<const std::string> operands, bool scalar_condition) = 0;
  virtual void open_loop(const Node* n) = 0;
  virtual void open_if(const Node* n) = 0;
  virtual void close(const Node* opened) = 0;
  virtual void load(const Node* n, const Access& a) = 0;
  virtual void store(const Node* n, const Access& a) = 0;
  virtual std::string cast_text(DType from, DType to, int64_t lanes, const std::string& v) = 0;
  virtual void bitcast(const Node* n) = 0;
  virtual std::string lane_text(DType dt, int64_t lanes, const std::string& v, int64_t i) = 0;
  virtual std::string vec_text(const Node* n) = 0;
  /// Half of the lanes of v, from `first` on.
  virtual std::string half_text(DType dt, int64_t lanes, const std::string& v, int64_t first) = 0;

  LinearProgram p_;
  std::string body_;
  int depth_ = 1;
  std::vector<const Node*> open_;  ///< RANGEs and IFs

 private:
  void node(const Node* n);
  void arithmetic(const Node* n);
  void fold(const Node* n);

  const char* const language_;
  const std::span<const TextRow> rows_;
  const char* const prefix_;
  int64_t n_names_ = 0;
  std::unordered_map<const Node*, std::string> value_;
  std::map<std::pair<const Node*, int64_t>, std::string> spread_;
};

}  // namespace whit::render
