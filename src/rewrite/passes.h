// Passes of users: graph to graph, run by the pipeline between its own passes.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "rewrite/ruleset.h"

namespace whit {

/// Where a pass runs; docs/ir.md says what the graph looks like there.
enum class PassStage : uint8_t {
  Tensor,  ///< section 1: SINK(values to compute..), before they are scheduled
  Kernel,  ///< section 2: a kernel, before its loops are optimised
  Loops,   ///< section 3: a kernel with its loops split, typed and ordered
};
using PassFn = std::function<UOp(const UOp& sink)>;

/// Runs `pass` on every graph that is scheduled or compiled while this lives, after those that were added before. It may
/// be called from several threads at once, and must give equal graphs for equal graphs: caches are kept by pass.
class PassScope {
 public:
  PassScope(PassStage stage, std::string name, PassFn pass);
  PassScope(PassStage stage, const RuleSet& rules);  ///< by the name of the set
  ~PassScope();
  PassScope& operator=(PassScope&&) = delete;  // nor is it copied
  struct Pass;

 private:
  std::shared_ptr<const Pass> pass_;
};

/// The graph after all passes of a stage.
/// errors: Internal, with the name of the pass, when what it gives is no legal graph of the stage; Type when a value's
/// shape or dtype is another than before
UOp run_passes(PassStage stage, UOp sink);
/// Names the passes at hand: belongs in the key of everything that is cached.
uint64_t passes_key();

}  // namespace whit
