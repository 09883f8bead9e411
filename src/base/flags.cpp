#include "base/flags.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/generation.h"
#include "base/immortal.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"

namespace whit {
namespace flag {
constinit std::atomic<int64_t> ints[static_cast<size_t>(Id::kCount)]{};
constinit std::atomic<const std::string*> texts[static_cast<size_t>(Id::kCount)]{};
}  // namespace flag

namespace {

// Values of text flags are kept for ever, so that a reader never holds a dead one. Distinct values are few.
const std::string* keep_text(const std::string& text) {
  static std::mutex mutex;
  static auto& kept = *new std::set<std::string>();
  const std::lock_guard lock(mutex);
  return &*kept.insert(text).first;
}

struct StartState {
  std::vector<bool> from_environment;
  std::string error;
};

constexpr auto start_state = immortal<StartState>;

void read_int(size_t id, const char* name, int64_t default_value) {
  const char* const env = std::getenv(name);
  int64_t value = default_value;
  start_state().from_environment.push_back(env != nullptr);
  if (env && *env && !parse_int(env, value)) {
    value = default_value;
    if (start_state().error.empty()) start_state().error = fmt::format("[flags] {}={} is not an integer", name, env);
  }
  flag::ints[id].store(value, std::memory_order_relaxed);
}

void read_text(size_t id, const char* name, const char* default_value) {
  const char* const env = std::getenv(name);
  start_state().from_environment.push_back(env != nullptr);
  flag::texts[id].store(keep_text(env ? env : default_value), std::memory_order_release);
}

// Before the initialisers of all other files: any of them may ask for a flag.
struct ReadEnvironment {
  ReadEnvironment() {
    size_t id = 0;
#define WHIT_FLAG_INT(name, default_value, ...) read_int(id++, #name, default_value);
#define WHIT_FLAG_STR(name, default_value, ...) read_text(id++, #name, default_value);
#include "base/flags.def"
  }
};
[[gnu::init_priority(200)]] const ReadEnvironment read_environment;

size_t must_find(std::string_view name) {
  const std::vector<FlagInfo>& infos = flag_infos();
  std::vector<std::string> names;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (name == infos[i].name) return i;
    names.emplace_back(infos[i].name);
  }
  raise(ErrorKind::Key, "[flags] unknown flag '{}'{}", name, did_you_mean(name, names));
}

FlagValue value_of(size_t id) {
  if (flag_infos()[id].is_text) return *flag::texts[id].load(std::memory_order_acquire);
  return flag::ints[id].load(std::memory_order_relaxed);
}

// The value in the type of the flag.
FlagValue must_convert(size_t id, const FlagValue& value) {
  const FlagInfo& info = flag_infos()[id];
  const std::string* const text = std::get_if<std::string>(&value);
  if (info.is_text) {
    WHIT_USER(text, Type, "[flags] {} takes a text, got the integer {}", info.name, std::get<int64_t>(value));
    return value;
  }
  if (!text) return value;
  int64_t number = 0;
  WHIT_USER(parse_int(*text, number), Type, "[flags] {} takes an integer, got '{}'", info.name, *text);
  return number;
}

// A flag whose part does not exist yet must not be mistaken for one that works.
void say_when_not_there(size_t id) {
  const FlagInfo& info = flag_infos()[id];
  if (!std::string_view(info.doc).starts_with("not there yet")) return;
  say_once(std::string("flag ") + info.name, fmt::format("whit: the flag {} has no effect yet", info.name));
}

void store(size_t id, const FlagValue& value) {
  if (value != value_of(id)) say_when_not_there(id);
  if (const std::string* text = std::get_if<std::string>(&value)) {
    flag::texts[id].store(keep_text(*text), std::memory_order_release);
  } else {
    flag::ints[id].store(std::get<int64_t>(value), std::memory_order_relaxed);
  }
  next_generation();
}

}  // namespace

const std::vector<FlagInfo>& flag_infos() {
  static const auto& infos = *new std::vector<FlagInfo>{
#define WHIT_FLAG_INT(name, default_value, codegen, doc) {#name, false, codegen, doc},
#define WHIT_FLAG_STR(name, default_value, codegen, doc) {#name, true, codegen, doc},
#include "base/flags.def"
  };
  return infos;
}

FlagValue flag_value(std::string_view name) { return value_of(must_find(name)); }

void set_flag(std::string_view name, const FlagValue& value) {
  const size_t id = must_find(name);
  store(id, must_convert(id, value));
}

void check_flags() {
  const std::string& error = start_state().error;
  WHIT_USER(error.empty(), Value, "{}", error);
  for (size_t id = 0; id < flag_infos().size(); ++id)
    if (start_state().from_environment[id]) say_when_not_there(id);
}

std::string codegen_flags() {
  std::string all;
  const std::vector<FlagInfo>& infos = flag_infos();
  for (size_t i = 0; i < infos.size(); ++i)
    if (infos[i].codegen) all += std::visit([&](const auto& value) { return fmt::format("{}={};", infos[i].name, value); }, value_of(i));
  return all;
}

const std::string* getenv_once(std::string_view name) {
  static std::mutex mutex;
  static auto& seen = *new std::map<std::string, std::optional<std::string>, std::less<>>();
  const std::lock_guard lock(mutex);
  auto found = seen.find(name);
  if (found == seen.end()) {
    const std::string key(name);
    const char* const env = std::getenv(key.c_str());
    found = seen.emplace(key, env ? std::optional<std::string>(env) : std::nullopt).first;
  }
  return found->second ? &*found->second : nullptr;
}

FlagScope::FlagScope(std::string_view name, const FlagValue& value)
    : FlagScope(std::vector<std::pair<std::string, FlagValue>>{{std::string(name), value}}) {}

FlagScope::FlagScope(const std::vector<std::pair<std::string, FlagValue>>& overrides) {
  std::vector<std::pair<size_t, FlagValue>> checked;
  for (const auto& [name, value] : overrides) {
    const size_t id = must_find(name);
    checked.emplace_back(id, must_convert(id, value));
  }
  for (const auto& [id, value] : checked) {
    saved_.emplace_back(flag_infos()[id].name, value_of(id));
    store(id, value);
  }
}

FlagScope::~FlagScope() {
  for (size_t i = saved_.size(); i-- > 0;) set_flag(saved_[i].first, saved_[i].second);
}

}  // namespace whit
