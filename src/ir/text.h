// The text form of graphs: printed for people, parsed back to the same nodes.
//
//   %0 = PARAM float32 [0, 16]           a node a line: name, op, dtype, then sources and argument where there are any
//   %1 = CONST float32 2.0
//   %2 = MUL float32 (%0, %1)            sources are named before they are used
//   %3 = REDUCE float32 (%2) {"add", 0}  ; a comment ends a line
//
// Arguments: true, 5, 1.5, inf, nan, Invalid, "text" (escapes \" \\ \n \t \xNN), [1, 2] for ints, {1, "a", None} for a
// list. Floats print as the shortest decimal that reads back exactly and always show that they are floats (2.0, 1e+30);
// a NaN with other bits than the usual ones prints them: nan:7ff0000000000001.
// The last node is the graph. Numbers follow the order of sources, so equal graphs have equal texts. A BUFFER's unique
// id prints as its place among the graph's BUFFERs, and every BUFFER that is parsed is a fresh one.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "ir/uop.h"

namespace whit {

std::string to_text(const UOp& root);
std::string to_text(std::span<const UOp> roots);
std::string to_text(const Arg& arg);
/// A scalar expression as people write it, "i*2+1"; a BIND reads as its VARIABLE.
std::string to_formula(const UOp& u);

/// Reads the form that to_text writes; blank lines are skipped and names may be words (%acc).
/// errors: Value, with line, column and what was expected
UOp parse_text(std::string_view text);

namespace detail {
/// Appends the line of one node without its end; `number_of` gives the names of its sources.
void append_node_text(std::string& out, const Node* n, int64_t number, const std::unordered_map<const Node*, int64_t>& number_of);
}  // namespace detail

}  // namespace whit
