#include "rewrite/passes.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "base/immortal.h"
#include "ir/verify.h"
#include "rewrite/rewrite.h"

namespace whit {

struct PassScope::Pass {
  PassStage stage;
  std::string name;
  PassFn run;
};

namespace {

std::mutex mutex;
struct Passes : std::vector<std::shared_ptr<const PassScope::Pass>> {};
constexpr auto all_passes = immortal<Passes>;
// 0 without passes, which is what almost every graph asks; else another number after each change.
std::atomic<uint64_t> key{0}, n_changes{0};
void set_key() { key = all_passes().empty() ? 0 : ++n_changes; }

}  // namespace

PassScope::PassScope(PassStage stage, std::string name, PassFn pass) : pass_(std::make_shared<Pass>(Pass{stage, std::move(name), std::move(pass)})) {
  const std::lock_guard lock(mutex);
  all_passes().push_back(pass_);
  set_key();
}

PassScope::PassScope(PassStage stage, const RuleSet& rules)
    : PassScope(stage, rules.name(), [rules](const UOp& sink) { return graph_rewrite(sink, rules, {.name = rules.name()}); }) {}

PassScope::~PassScope() {
  const std::lock_guard lock(mutex);
  std::erase(all_passes(), pass_);
  set_key();
}

uint64_t passes_key() { return key; }

UOp run_passes(PassStage stage, UOp sink) {
  if (passes_key() == 0) return sink;
  std::unique_lock lock(mutex);
  const auto passes = all_passes();
  lock.unlock();
  for (const auto& p : passes) {
    if (p->stage != stage) continue;
    const UOp out = p->run(sink);
    WHIT_USER(out && out.op() == Op::Sink && out.n_src() == sink.n_src(), Type,
              "[pass {}] expected a SINK of {} sources like the one that it was given", p->name, sink.n_src());
    for (size_t i = 0; i < sink.n_src(); ++i)
      WHIT_USER(out.src(i).dtype() == sink.src(i).dtype() && out.src(i).shape() == sink.src(i).shape(), Type,
                "[pass {}] value {} became {} of shape {}, it was {} of shape {}", p->name, i, name(out.src(i).dtype()), out.src(i).shape().str(),
                name(sink.src(i).dtype()), sink.src(i).shape().str());
    verify(out, stage == PassStage::Tensor ? Level::Tensor : Level::Kernel, p->name);
    sink = out;
  }
  return sink;
}

}  // namespace whit
