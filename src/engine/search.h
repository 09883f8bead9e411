// BEAM: the decisions of the optimiser with which a kernel is fastest on this machine, found by trying.
//
// How it works. The beam starts with what the cost model says. A round takes each question that came up in its members
// (codegen/decisions.h) and answers it otherwise; new programs are compiled and timed, the `width` best stay; a round
// that finds nothing better is the last. A candidate lives in a forked child that compiles it and times it in turn with the
// best one so far, so what else the machine does hits both.
//
// Requirements: (1) a candidate that hangs or dies costs that candidate alone; (2) winners are kept in the cache on disk,
// and so is every measurement, hence a search that was ended goes on where it was; (3) it takes no longer than
// BEAM_BUDGET says, by a round of timing; (4) the result computes the same bits as the model's.
#pragma once
#include <string>

#include "engine/compile.h"

namespace whit::engine {

/// The text of the best decisions, "" for the model's own. Kernels of devices other than the CPU's are not searched.
/// `deadline_ns` (os::now_ns; 0: none) ends the search. errors: those of compiling the model's own program
std::string search_decisions(const CompileJob& job, const CodePath& path, int64_t width, int64_t deadline_ns);

}  // namespace whit::engine
