#include "engine/compile.h"

#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <unordered_map>

#include "base/build_id.h"
#include "base/flags.h"
#include "base/immortal.h"
#include "base/log.h"
#include "base/os.h"
#include "base/profile.h"
#include "codegen/lower.h"
#include "engine/search.h"
#include "ir/build.h"
#include "ir/text.h"
#include "render/renderer.h"
#include "rewrite/passes.h"
#include "runtime/disk_cache.h"

namespace whit::engine {
namespace {

using CacheKey = std::tuple<const Node*, const CodePath*, uint64_t>;  // kernel, by whom, for which flags and passes
struct Cache {
  std::mutex mutex;
  std::map<CacheKey, ExecutablePtr> map{};
};
constexpr auto cache = immortal<Cache>;

// Operations and bytes of a kernel: every node counts once for each value of the loops that it depends on.
void estimate(const UOp& sink, Executable& e) {
  __int128 ops = 0, bytes = 0;
  const auto times = [](const Node* n) {
    __int128 t = 1;
    if (n->range_set)
      for (const Node* r : n->range_set->nodes) t *= range_size(r);
    return t;
  };
  for (const Node* n : toposort(sink)) {
    if (n->op == Op::Param) bytes += static_cast<__int128>(n->shape.numel()) * n_bytes(n->dtype);
    if (n->dtype == DType::WeakInt || n->dtype == DType::Void) continue;
    if (n->op == Op::Reduce) ops += times(n->src()[0]);
    if (is_elementwise(n->op) && n->op != Op::Cast && n->op != Op::Bitcast) ops += times(n) * (n->op == Op::MulAcc ? 2 : 1);
  }
  e.n_ops = static_cast<int64_t>(std::min<__int128>(ops, INT64_MAX));
  e.n_bytes = static_cast<int64_t>(std::min<__int128>(bytes, INT64_MAX));
}

// When all searches of this process shall be done, or 0.
int64_t search_end() {
  static const int64_t first = os::now_ns();
  return flag::BEAM_BUDGET() > 0 ? first + flag::BEAM_BUDGET() * 1'000'000'000 : 0;
}

}  // namespace

Target target_for(const CodePath& path) {
  Target t = host_target();
  t.renderer = path.renderer;
  for (char& c : t.renderer) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (path.arch != host_cpu_arch()) t.dots_bfloat16 = t.dots_bytes = false;
  t.n_cores = static_cast<int>(flag::THREADS() ? flag::NUM_CPU_THREADS() : 1);
  return t;
}

ExecutablePtr compile_program(const CompileJob& job, const CodePath& path, const Target& target, const UOp& program) {
  const UOp& sink = job.sink;
  auto e = std::make_shared<Executable>();
  e->sink = sink;
  e->device = job.device;
  e->name = sink.arg().at(0).as_str();
  estimate(sink, *e);
  KernelObject& o = e->object;
  o.name = e->name;
  if (!program) {
    for (const Node* n : toposort(sink)) {
      if (n->op == Op::Variable) e->variables.emplace_back(n->arg.at(0).as_str());
      if (n->op == Op::Param) o.n_buffers = std::max(o.n_buffers, static_cast<int>(n->arg.int_at(0)) + 1);
    }
    o.library = to_text(sink);
    return e;
  }
  const int64_t start = os::now_ns();
  const ProfileSpan span("compile", e->name);
  e->source = renderer_by_name(target.renderer).render(program, e->name, target);
  if (flag::DEBUG() >= 4) log_line(e->source);
  const KernelSignature signature = signature_of(program);
  e->variables = signature.variables;
  o.arch = path.arch;
  for (const auto& b : signature.buffers) o.n_buffers = std::max(o.n_buffers, static_cast<int>(b.slot) + 1);
  o.n_variables = static_cast<int>(signature.variables.size());
  o.scratch_bytes = signature.scratch_bytes;
  o.min_part = ProgramInfo::of(program).min_part;
  o.extents = signature.extents;
  e->size_.global[0] = signature.n_global;
  try {
    o.library = path.kind == "NULL" ? path.compiler->compile(e->name, e->source) : path.compiler->compile_cached(e->name, e->source);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Compile) throw;
    raise(ErrorKind::Compile,
          "{}\nkernel {} for {} by renderer {}; DEBUG=5 shows its graph, DEBUG=4 its source; NOOPT=1 "
          "compiles it without optimisation",
          error.what(), e->name, job.device, path.renderer);
  }
  if (flag::DEBUG() >= 3)
    log_line(
        fmt::format("compiled {:<40} in {:6.2f} ms, {}", e->name, static_cast<double>(os::now_ns() - start) * 1e-6, to_text(program.src(0).arg())));
  return e;
}

// Executables on disk, by kernel and build: a warm start lowers and renders nothing. Not for those who look at lowering.
class ProgramCache {
  static auto kept(Executable& e) {
    KernelObject& o = e.object;
    return std::tie(e.name, e.source, e.variables, e.n_ops, e.n_bytes, e.size_.global[0], o.name, o.arch, o.library, o.n_buffers, o.n_variables,
                    o.scratch_bytes, o.min_part, o.extents);
  }
  template <class... T> static std::tuple<T...> values(std::tuple<T&...>);

 public:
  ProgramCache(const CompileJob& job, const CodePath& path, const Target& t, const std::string& decisions) : job_(job) {
    const bool is_looked_at = flag::DEBUG() >= 3 || flag::SPEC() > 0 || flag::TRACK_MATCH_STATS() > 0;
    // Not code of users, nor of a compiler that says that nothing of it is to be kept.
    const bool is_own = passes_key() == 0 && (t.renderer == "llvm" || t.renderer == "c") && path.kind != "NULL" && !path.compiler->key().empty();
    if (is_looked_at || !is_own || !flag::CCACHE() || !flag::CACHELEVEL() || build_id().empty()) return;
    key_ = fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", build_id(), job.sink.key().hex(), path.kind, path.renderer, path.arch,
                       path.compiler->key(), t.vector_bytes, t.n_vector_registers, t.has_fma + 2 * t.dots_bfloat16 + 4 * t.dots_bytes, t.l1_bytes,
                       t.l2_bytes, t.l3_bytes, t.n_cores, codegen_flags(), decisions);
  }
  ExecutablePtr find() const {
    std::optional<std::string> found;
    if (!key_.empty()) found = DiskCache::get().find("program", key_);
    if (!found) return nullptr;
    auto e = std::make_shared<Executable>();
    e->sink = job_.sink;
    e->device = job_.device;
    kept(*e) = nlohmann::json::from_cbor(*found).get<decltype(values(kept(*e)))>();
    return e;
  }
  void put(Executable& e) const {
    if (key_.empty()) return;
    std::string all;
    nlohmann::json::to_cbor(nlohmann::json(kept(e)), all);
    DiskCache::get().put("program", key_, all);
  }

 private:
  const CompileJob& job_;
  std::string key_{};
};

ExecutablePtr compile_kernel(const CompileJob& job, const CodePath& path, const std::string& decisions) {
  const Target target = target_for(path);
  if (path.kind == "REF") return compile_program(job, path, target, UOp());
  const ProgramCache kept(job, path, target, decisions);
  if (ExecutablePtr found = kept.find()) return found;
  if (flag::DEBUG() >= 5) log_line(to_text(job.sink));
  codegen::Decisions said(decisions);
  UOp program;
  {
    const ProfileSpan span("lower", job.sink.arg().at(0).as_str());
    program = lower_kernel(job.sink, target, &said);
  }
  ExecutablePtr e = compile_program(job, path, target, program);
  kept.put(*e);
  return e;
}

void Executable::load() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (loaded_) return;
  const ProfileSpan span("load", name);
  Device& d = Device::get(device);
  program_ = d.load(object);
  if (const auto* cpu = dynamic_cast<const CpuProgram*>(program_.get())) cpu_ = cpu->kernel(size_.global[0]);
  loaded_ = true;
}

std::vector<ExecutablePtr> compile_all(std::span<const CompileJob> jobs, int64_t beam) {
  std::vector<ExecutablePtr> out(jobs.size());
  struct Missing {
    CacheKey key;
    const CompileJob* job;
    std::string decisions{};
    ExecutablePtr made{};
    std::exception_ptr error{};
  };
  std::vector<Missing> missing;
  const uint64_t flags = hash_mix(hash128(codegen_flags()).lo, passes_key());
  std::vector<CacheKey> keys;
  std::unordered_map<std::string_view, const CodePath*> paths;
  for (const CompileJob& job : jobs) {
    const CodePath*& path = paths[job.device];
    if (!path) path = &code_path(job.device);
    keys.push_back({job.sink.node(), path, hash_mix(hash_mix(flags, device_id(job.device)), static_cast<uint64_t>(beam))});
  }
  Cache& c = cache();
  {
    std::set<CacheKey> seen;
    std::lock_guard lock(c.mutex);
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (const auto it = c.map.find(keys[i]); it != c.map.end()) out[i] = it->second;
      else if (seen.insert(keys[i]).second) missing.push_back({keys[i], &jobs[i]});
    }
  }
  if (missing.empty()) return out;
  if (beam > 0) {  // one at a time: they are timed
    static std::mutex searching;
    const std::lock_guard lock(searching);
    const int64_t end = search_end();
    for (size_t i = 0; i < missing.size(); ++i) {
      const int64_t now = os::now_ns(), left = static_cast<int64_t>(missing.size() - i);
      Missing& m = missing[i];
      m.decisions = search_decisions(*m.job, *std::get<1>(m.key), beam, end ? now + std::max<int64_t>(0, end - now) / left : 0);
    }
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < missing.size();) {
      try {
        os::poll_interrupt();
        missing[i].made = compile_kernel(*missing[i].job, *std::get<1>(missing[i].key), missing[i].decisions);
      } catch (...) {
        missing[i].error = std::current_exception();
        next = missing.size();  // the others would be in vain
      }
    }
  };
  const auto n_threads = std::min<size_t>(static_cast<size_t>(std::max<int64_t>(0, flag::PARALLEL())), missing.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < n_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  std::lock_guard lock(c.mutex);
  for (const Missing& m : missing)
    if (m.made) c.map.emplace(m.key, m.made);
  for (const Missing& m : missing)
    if (m.error) std::rethrow_exception(m.error);
  for (size_t i = 0; i < jobs.size(); ++i)
    if (!out[i]) out[i] = c.map.at(keys[i]);
  return out;
}

}  // namespace whit::engine
