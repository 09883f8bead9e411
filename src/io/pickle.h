// Python's pickle format, read as data. Nothing is imported and nothing is called: what a pickle asks to call is recorded,
// and refused unless it stands in a list of constructors whose effect is known. The result is a graph of values.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace whit::io {

struct PickleValue {
  enum class Kind : uint8_t {
    None,
    Bool,        ///< number
    Int,         ///< number
    BigInt,      ///< text: the bytes of a two's complement number, little-endian
    Float,       ///< real
    Text,        ///< text, UTF-8
    Data,        ///< text: bytes
    List,        ///< items
    Tuple,       ///< items
    Set,         ///< items
    Dict,        ///< items: key, value, key, value ...
    Global,      ///< text: "module name"
    Persistent,  ///< items: the id
    Call,        ///< text: what was called; items: its arguments; then what was appended, set or given as state
    Object,      ///< text: an unknown class; as Call
  };
  Kind kind = Kind::None;
  int64_t number = 0;
  double real = 0;
  std::string text;
  std::vector<PickleValue*> items;
  std::vector<PickleValue*> appended;  ///< of Call and Object: list items, or keys and values
  PickleValue* state = nullptr;        ///< of Call and Object: what BUILD gave
  int64_t index = -1;                  ///< for who reads the graph: a number of its own

  bool is(Kind k, std::string_view t) const { return kind == k && text == t; }
};

/// The values of one or more pickles; they live as long as this. Values may hold each other in circles.
class Pickle {
 public:
  /// Reads a pickle of any protocol (0 to 5) from `bytes`, which are those of a file from `off_bytes` on; gives the value,
  /// and in `n_used` the length of the pickle. `path` and the offset stand in errors.
  /// errors: Io for a pickle that is damaged, cut off, or claims more than there is; that calls what is not listed; that
  /// uses extension codes or buffers from elsewhere
  PickleValue* read(const std::string& path, int64_t off_bytes, Bytes bytes, int64_t* n_used = nullptr);

  /// In the order in which they were made: parts before what is made of them.
  std::deque<PickleValue>& values() { return values_; }

 private:
  friend struct PickleReader;
  std::deque<PickleValue> values_;
};

/// Bytes, or text that stands for them: as it is (Python 2), or latin-1 written as UTF-8 (`_codecs.encode`). False when `v` is
/// neither.
bool pickle_bytes(const PickleValue& v, std::string& out);

}  // namespace whit::io
