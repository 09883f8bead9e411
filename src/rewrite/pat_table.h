// PatTable: the matcher that all tables share. Rows in order; the first that matches and is accepted wins.
//
// How it works. Each row's pattern is expanded (comm) to at most four plain ones. Entries are kept by root
// op; each has the set of ops that source 0 and source 1 may have and the dtypes of the root. For a (op, op of source
// 0, op of source 1, dtype) the list of entries that can match is computed once and remembered, so the usual look-up
// reads one word, and the match itself runs over 32-byte nodes.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "rewrite/rule.h"

namespace whit {

class PatTable {
 public:
  /// Appends a row; `table` names the table in errors. errors: Internal, with file:line, for a pattern that can never
  /// match because builders order operands otherwise, or that has too many variants
  void add(const char* table, const Row& row, bool raw_order = false);

  struct Cursor {
    const uint32_t* at;
    const uint32_t* end;
  };
  /// The entries that may match n.
  Cursor candidates(const Node* n) const;
  /// Finds the next match; m.row is its row and `index` the row's number. False when there is none.
  bool next(Cursor& c, const Node* n, Match& m, uint32_t* index) const;

  std::span<const Row* const> rows() const { return rows_; }

 private:
  struct Entry {
    OpSet ops, src0, src1;
    pat::DTypes dtypes;
    uint32_t row, code;
  };
  struct ShortList {
    uint32_t key;
    std::vector<uint32_t> entries{};
  };
  const ShortList& short_list(uint32_t key) const;

  std::vector<const Row*> rows_{};
  std::vector<Entry> entries_{};
  std::vector<pat::PatNode> code_{};
  static constexpr size_t kCacheSlots = 512;
  mutable std::atomic<const ShortList*> cache_[kCacheSlots] = {};
  mutable std::mutex mutex_{};
  mutable std::unordered_map<uint32_t, std::unique_ptr<ShortList>> lists_{};
};

/// All plain patterns that `a` stands for. errors: Internal when they are more than four
std::vector<Pat> expand_variants(const Pat& a);
/// Does every node that b matches also match a?
bool subsumes(const Pat& a, const Pat& b);

}  // namespace whit
