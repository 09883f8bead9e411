// Rules from Python: patterns and functions of a PatternMatcher become rows of a RuleSet, which the engine runs like its
// own tables.
#include <deque>

#include "convert.h"
#include "rules/rules.h"

namespace whit::python {
namespace {

// What a row calls. Rows refer to it by Rule::user; the matcher owns it.
struct PyRow {
  nb::object fn;
  bool takes_ctx;
  std::vector<std::pair<nb::object, uint8_t>> captures{};  // name, slot
  std::vector<std::pair<nb::object, uint8_t>> args{};      // wanted arg, slot
};

struct PyMatcher {
  RuleSet rules;
  std::vector<std::shared_ptr<std::deque<PyRow>>> rows{};
};

const char* kept(std::string_view text) {
  static auto* const all = new std::deque<std::string>;
  for (const std::string& t : *all)
    if (t == text) return t.c_str();
  return all->emplace_back(text).c_str();
}

// A pattern as UPat.plain() gives it: (ops or None, dtypes or None, name or None, (arg,) or None, sources, rest, all).
class PatternReader {
 public:
  explicit PatternReader(PyRow& row) : row_(row) {}

  Pat read(nb::handle h) {
    Pat pat;
    append(pat, h, true);
    return pat;
  }

 private:
  void append(Pat& pat, nb::handle h, bool is_root) {
    const nb::tuple t = nb::borrow<nb::tuple>(h);
    WHIT_USER(pat.len < Pat::kMaxNodes, Value, "[UPat] a pattern has more than {} nodes", Pat::kMaxNodes);
    pat::PatNode& n = pat.node[pat.len++];
    const nb::tuple sources = nb::borrow<nb::tuple>(t[4]);
    const bool rest = nb::cast<bool>(t[5]), all = nb::cast<bool>(t[6]);
    if (!t[1].is_none()) {
      n.dtypes = 0;
      for (nb::handle dt : nb::borrow<nb::tuple>(t[1])) n.dtypes |= pat::bit(to_dtype(dt));
    }
    if (!t[2].is_none()) n.slot = slot(t[2]);
    if (!t[3].is_none()) {
      if (n.slot == pat::kNoSlot) n.slot = fresh();
      row_.args.emplace_back(nb::borrow<nb::tuple>(t[3])[0], n.slot);
    }
    if (!is_root && t[0].is_none() && sources.size() == 0 && rest) return;  // any node
    n.kind = pat::PatKind::Node;
    if (t[0].is_none()) n.ops = OpSet::between(static_cast<Op>(0), static_cast<Op>(kNumOps - 1));
    else
      for (nb::handle o : nb::borrow<nb::tuple>(t[0])) n.ops = n.ops | nb::cast<Op>(o);
    n.n_src = static_cast<uint8_t>(sources.size());
    if (rest) n.flags |= pat::PatNode::kRest;
    if (all) n.flags |= pat::PatNode::kAll;
    for (nb::handle s : sources) append(pat, s, false);
  }
  uint8_t fresh() {
    WHIT_USER(n_slots_ < pat::kNumSlots, Value, "[UPat] a pattern has more than {} names", pat::kNumSlots);
    return n_slots_++;
  }
  uint8_t slot(nb::handle name) {
    for (const auto& [known, s] : row_.captures)
      if (known.equal(name)) return s;
    row_.captures.emplace_back(nb::borrow(name), fresh());
    return row_.captures.back().second;
  }
  PyRow& row_;
  uint8_t n_slots_ = 0;
};

// Calls the function of the row that matched.
UOp call_row(const Match& m, RuleCtx& cx) {
  const nb::gil_scoped_acquire lock;
  const PyRow& row = *static_cast<const PyRow*>(static_cast<const Rule*>(m.row)->user);
  for (const auto& [want, slot] : row.args)
    if (!nb::object(uop_object(UOp(m.slot[slot])).attr("arg")).equal(want)) return {};
  nb::dict kw;
  for (const auto& [name, slot] : row.captures) kw[name] = uop_object(UOp(m.slot[slot]));
  if (row.takes_ctx) kw["ctx"] = cx.user ? nb::borrow(static_cast<PyObject*>(cx.user)) : nb::object(nb::none());
  nb::object out;
  try {
    out = row.fn(**kw);
  } catch (const nb::python_error& e) {
    if (!e.matches(nb::module_::import_("whit.uop.upat").attr("BottomUpGate"))) throw;
    cx.stop = true;
    return {};
  }
  UOp u;
  if (out.is_none() || nb::try_cast<UOp>(out, u)) return u;
  raise(ErrorKind::Type, fmt::format("[PatternMatcher] rule {} returned a {}; expected a UOp or None", static_cast<const Rule*>(m.row)->name,
                                     nb::type_name(out.type()).c_str()));
}

// `list`: (name, file, line, pattern, function, takes_ctx) a row.
PyMatcher make_matcher(const std::string& name, nb::handle list) {
  auto rows = std::make_shared<std::deque<PyRow>>();
  std::vector<Rule> rules;
  std::deque<std::string> names;
  for (nb::handle h : nb::borrow<nb::iterable>(list)) {
    const nb::tuple t = nb::borrow<nb::tuple>(h);
    PyRow& row = rows->emplace_back(PyRow{nb::object(t[4]), nb::cast<bool>(t[5])});
    Rule r{};
    r.name = names.emplace_back(nb::cast<std::string>(t[0])).c_str();
    r.file = kept(nb::cast<std::string>(t[1]));
    r.line = nb::cast<uint32_t>(t[2]);
    r.lhs = PatternReader(row).read(t[3]);
    r.then = call_row;
    r.user = &row;
    r.raw_order = true;  // UPat lists the orders itself
    rules.push_back(r);
  }
  return {RuleSet(name, std::move(rules)), {rows}};
}

}  // namespace

void bind_rewrite(nb::module_& m) {
  nb::class_<PyMatcher>(m, "RuleSet", "Rules ready for use: a table of the C++ core, or made from Python.")
      .def("__add__",
           [](const PyMatcher& a, const PyMatcher& b) {
             PyMatcher sum{a.rules + b.rules, a.rows};
             sum.rows.insert(sum.rows.end(), b.rows.begin(), b.rows.end());
             return sum;
           })
      .def(
          "rewrite",
          [](const PyMatcher& s, const UOp& u, nb::handle ctx) {
            RuleCtx cx{ctx.is_none() ? nullptr : ctx.ptr()};
            return s.rules.rewrite(u.node(), cx);
          },
          nb::arg("uop"), nb::arg("ctx") = nb::none(), "What the first rule that applies makes of a node, else None.")
      .def_prop_ro("names", [](const PyMatcher& s) {
        std::vector<std::string> names;
        for (const Rule* r : s.rules.rules()) names.push_back(s.rules.full_name(r));
        return names;
      });
  m.def("make_rules", &make_matcher, nb::arg("name"), nb::arg("rows"));
  m.def("core_rules", [](std::string_view name) {
    for (const RuleSet* s : rules::tables())
      if (name == s->name()) return PyMatcher{*s};
    if (name == "symbolic") return PyMatcher{rules::symbolic()};
    std::string known = "symbolic";
    for (const RuleSet* s : rules::tables()) known += std::string(", ") + s->name();
    raise(ErrorKind::Key, fmt::format("[core_rules] there is no table {}; there are {}", name, known));
  });
  m.def(
      "graph_rewrite",
      [](const UOp& root, const PyMatcher& s, nb::handle ctx, const std::string& name, bool bottom_up, bool walk, bool enter_calls) {
        return graph_rewrite(
            root, s.rules,
            {.name = kept(name), .ctx = ctx.is_none() ? nullptr : ctx.ptr(), .bottom_up = bottom_up, .walk = walk, .enter_calls = enter_calls});
      },
      nb::arg("sink"), nb::arg("rules"), nb::arg("ctx") = nb::none(), nb::arg("name") = "python", nb::arg("bottom_up") = false,
      nb::arg("walk") = false, nb::arg("enter_calls") = false);
  m.def(
      "trace_rewrites",
      [](nb::callable fn) {
        RewriteTrace trace;
        nb::object result = fn();
        nb::list events;
        for (const RewriteEvent& e : trace.events)
          events.append(nb::make_tuple(std::string(e.pass), e.rule, uop_object(e.before), uop_object(e.after)));
        return nb::make_tuple(result, events);
      },
      "What a function returns, and the rewrites that happened: (pass, rule, before, after).");
}

}  // namespace whit::python
