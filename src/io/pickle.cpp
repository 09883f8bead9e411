#include "io/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

namespace whit::io {
namespace {

using Kind = PickleValue::Kind;

// What a pickle may ask to call: constructors of values, none of which has another effect. They are recorded, not called.
constexpr std::string_view kConstructors[] = {
    "collections OrderedDict",
    "collections defaultdict",
    "collections Counter",
    "builtins set",
    "builtins frozenset",
    "builtins list",
    "builtins dict",
    "builtins tuple",
    "builtins bytearray",
    "builtins complex",
    "builtins slice",
    "_codecs encode",
    "copyreg _reconstructor",
    "torch Size",
    "torch device",
    "torch dtype",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state",
    "torch.serialization _get_layout",
    "numpy dtype",
    "numpy.core.multiarray _reconstruct",
    "numpy.core.multiarray scalar",
    "numpy._core.multiarray _reconstruct",
    "numpy._core.multiarray scalar",
};

// Python 2's names.
std::string modern_name(std::string_view module, std::string_view name) {
  if (module == "__builtin__") module = "builtins";
  if (module == "copy_reg") module = "copyreg";
  return fmt::format("{} {}", module, name);
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
  } else {
    out += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)), static_cast<char>(0x80 | (c >> 6 & 63)),
            static_cast<char>(0x80 | (c & 63))};
  }
}

}  // namespace

struct PickleReader {
  Pickle& pickle;
  const std::string& path;
  int64_t off_bytes;
  Bytes in;
  size_t at = 0, op_at = 0;
  std::vector<PickleValue*> stack;
  std::vector<size_t> marks;
  std::unordered_map<uint64_t, PickleValue*> memo;

  [[noreturn]] void fail(const std::string& reason) const {
    raise(ErrorKind::Io, "[pickle] {}: offset {}: {}", path, off_bytes + static_cast<int64_t>(op_at), reason);
  }
  void check(bool ok, const char* reason) const {
    if (!ok) fail(reason);
  }
  PickleValue* make(Kind kind) {
    pickle.values_.emplace_back();
    pickle.values_.back().kind = kind;
    return &pickle.values_.back();
  }
  PickleValue* make_text(Kind kind, std::string text) {
    PickleValue* v = make(kind);
    v->text = std::move(text);
    return v;
  }
  PickleValue* make_number(Kind kind, int64_t n) {
    PickleValue* v = make(kind);
    v->number = n;
    return v;
  }
  void push(PickleValue* v) { stack.push_back(v); }
  PickleValue* pop() {
    check(stack.size() > (marks.empty() ? 0 : marks.back()), "an operation finds nothing on the stack");
    PickleValue* v = stack.back();
    stack.pop_back();
    return v;
  }
  PickleValue* top() const {
    check(stack.size() > (marks.empty() ? 0 : marks.back()), "an operation finds nothing on the stack");
    return stack.back();
  }
  std::vector<PickleValue*> pop_to_mark() {
    check(!marks.empty(), "there is no mark on the stack");
    const auto begin = stack.begin() + static_cast<int64_t>(marks.back());
    std::vector<PickleValue*> items(begin, stack.end());
    stack.erase(begin, stack.end());
    marks.pop_back();
    return items;
  }

  const uint8_t* take(uint64_t n) {
    if (n > in.size() - at) fail(fmt::format("{} bytes are claimed, {} are left", n, in.size() - at));
    const uint8_t* p = in.data() + at;
    at += n;
    return p;
  }
  uint64_t take_number(int n) {
    const uint8_t* p = take(static_cast<uint64_t>(n));
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; --i) v = v << 8 | p[i];
    return v;
  }
  std::string take_text(uint64_t n) {
    const uint8_t* p = take(n);
    return {reinterpret_cast<const char*>(p), n};
  }
  std::string take_line() {
    const uint8_t* end = std::find(in.data() + at, in.data() + in.size(), '\n');
    check(end != in.data() + in.size(), "a line does not end");
    std::string line(reinterpret_cast<const char*>(in.data() + at), static_cast<size_t>(end - in.data()) - at);
    at += line.size() + 1;
    return line;
  }
  template <class T> T parse(const std::string& text) {
    T v{};
    const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
    if (r.ec != std::errc() || r.ptr != text.data() + text.size()) fail(fmt::format("'{}' is no number that fits", text));
    return v;
  }
  // A quoted string of protocol 0, as repr writes it.
  std::string unquote(const std::string& line) {
    check(line.size() >= 2 && line.front() == line.back() && (line.front() == '\'' || line.front() == '"'), "a string has no quotes");
    std::string out;
    for (size_t i = 1; i + 1 < line.size(); ++i) {
      if (line[i] != '\\') {
        out += line[i];
        continue;
      }
      const char c = line[++i];
      if (c == 'x') {
        check(i + 3 < line.size(), "an escape is cut off");
        uint8_t byte = 0;
        const auto r = std::from_chars(line.data() + i + 1, line.data() + i + 3, byte, 16);
        check(r.ptr == line.data() + i + 3, "an escape is no number");
        out += static_cast<char>(byte);
        i += 2;
      } else {
        static constexpr std::string_view kFrom = "ntr\\'\"", kTo = "\n\t\r\\'\"";
        const size_t k = kFrom.find(c);
        check(k != std::string_view::npos, "an unknown escape in a string");
        out += kTo[k];
      }
    }
    return out;
  }
  std::string unescape(const std::string& line) {  // raw-unicode-escape, which is latin-1 with \u
    std::string out;
    for (size_t i = 0; i < line.size(); ++i) {
      const int n = line[i] == '\\' && i + 1 < line.size() ? (line[i + 1] == 'u' ? 4 : line[i + 1] == 'U' ? 8 : 0) : 0;
      uint32_t c = static_cast<uint8_t>(line[i]);
      if (n) {
        const char* begin = line.data() + i + 2;
        check(i + 2 + static_cast<size_t>(n) <= line.size() && std::from_chars(begin, begin + n, c, 16).ptr == begin + n && c < 0x110000,
              "an escape is no character");
        i += static_cast<size_t>(n) + 1;
      }
      append_utf8(out, c);
    }
    return out;
  }
  PickleValue* make_long(uint64_t n) {
    const uint8_t* p = take(n);
    if (n > 8) return make_text(Kind::BigInt, {reinterpret_cast<const char*>(p), n});
    uint64_t v = n && p[n - 1] & 0x80 ? ~uint64_t{0} : 0;
    for (uint64_t i = n; i-- > 0;) v = v << 8 | p[i];
    return make_number(Kind::Int, static_cast<int64_t>(v));
  }
  PickleValue* make_items(Kind kind, std::vector<PickleValue*> items) {
    PickleValue* v = make(kind);
    v->items = std::move(items);
    return v;
  }
  PickleValue* make_tuple(size_t n) {
    std::vector<PickleValue*> items(n);
    for (size_t i = n; i-- > 0;) items[i] = pop();
    return make_items(Kind::Tuple, std::move(items));
  }
  PickleValue* make_dict(std::vector<PickleValue*> items) {
    check(items.size() % 2 == 0, "a dict has a key without value");
    return make_items(Kind::Dict, std::move(items));
  }

  // `callable(*args)`; `is_new` when it is only `callable.__new__`, which makes an object of an unknown class.
  PickleValue* call(const PickleValue* callable, const PickleValue* args, bool is_new) {
    check(callable->kind == Kind::Global, "what is called is no global");
    check(args->kind == Kind::Tuple, "the arguments of a call are no tuple");
    const bool known = std::find(std::begin(kConstructors), std::end(kConstructors), callable->text) != std::end(kConstructors);
    if (!known && !is_new) {
      std::string name = callable->text;
      std::replace(name.begin(), name.end(), ' ', '.');
      fail(fmt::format("the file wants to call {} with {} arguments; nothing is called but known constructors of values", name, args->items.size()));
    }
    PickleValue* v = make_text(known ? Kind::Call : Kind::Object, callable->text);
    v->items = args->items;
    if (v->is(Kind::Call, "copyreg _reconstructor")) {  // an object of protocol 0 or 1
      check(args->items.size() == 3 && args->items[0]->kind == Kind::Global, "_reconstructor has wrong arguments");
      v->kind = Kind::Object;
      v->text = args->items[0]->text;
      v->items.clear();
    }
    return v;
  }
  // The container's own items, or those that an object of another class collects.
  std::vector<PickleValue*>& items_of(PickleValue* v, Kind kind) {
    if (v->kind == kind) return v->items;
    check(v->kind == Kind::Call || v->kind == Kind::Object, "items are added to what holds none");
    return v->appended;
  }
  void add(PickleValue* to, Kind kind, const std::vector<PickleValue*>& items) {
    check(kind != Kind::Dict || items.size() % 2 == 0, "a dict has a key without value");
    std::vector<PickleValue*>& list = items_of(to, kind);
    list.insert(list.end(), items.begin(), items.end());
  }
  void remember(uint64_t key) { memo[key] = top(); }
  void recall(uint64_t key) {
    const auto it = memo.find(key);
    if (it == memo.end()) fail(fmt::format("memo entry {} is used before it is set", key));
    push(it->second);
  }

  PickleValue* run() {
    for (;;) {
      op_at = at;
      check(at < in.size(), "the pickle ends before its STOP");
      const uint8_t op = *take(1);
      switch (op) {
        case 0x80: {  // PROTO
          const uint64_t version = take_number(1);
          if (version > 5) fail(fmt::format("protocol {}; 0 to 5 are there", version));
          break;
        }
        case 0x95: {  // FRAME
          const uint64_t n = take_number(8);
          if (n > in.size() - at) fail(fmt::format("a frame of {} bytes; {} are left", n, in.size() - at));
          break;
        }
        case '.': {
          check(marks.empty() && stack.size() == 1, "the pickle stops with other than one value on the stack");
          return stack[0];
        }
        case '(': marks.push_back(stack.size()); break;
        case '0':
          if (!marks.empty() && stack.size() == marks.back()) {
            marks.pop_back();
          } else {
            pop();
          }
          break;
        case '1': pop_to_mark(); break;
        case '2': push(top()); break;
        case 'N': push(make(Kind::None)); break;
        case 0x88: push(make_number(Kind::Bool, 1)); break;
        case 0x89: push(make_number(Kind::Bool, 0)); break;
        case 'I': {
          const std::string line = take_line();
          const bool is_bool = line == "00" || line == "01";
          push(make_number(is_bool ? Kind::Bool : Kind::Int, parse<int64_t>(line)));
          break;
        }
        case 'L': {
          std::string line = take_line();
          if (line.ends_with('L')) line.pop_back();
          push(make_number(Kind::Int, parse<int64_t>(line)));
          break;
        }
        case 'J': push(make_number(Kind::Int, static_cast<int32_t>(take_number(4)))); break;
        case 'K': push(make_number(Kind::Int, static_cast<int64_t>(take_number(1)))); break;
        case 'M': push(make_number(Kind::Int, static_cast<int64_t>(take_number(2)))); break;
        case 0x8a: push(make_long(take_number(1))); break;
        case 0x8b: push(make_long(take_number(4))); break;
        case 'F': {
          PickleValue* v = make(Kind::Float);
          v->real = parse<double>(take_line());
          push(v);
          break;
        }
        case 'G': {
          const uint8_t* p = take(8);
          uint64_t bits = 0;
          for (int i = 0; i < 8; ++i) bits = bits << 8 | p[i];
          PickleValue* v = make(Kind::Float);
          std::memcpy(&v->real, &bits, 8);
          push(v);
          break;
        }
        case 'S': push(make_text(Kind::Text, unquote(take_line()))); break;
        case 'T': push(make_text(Kind::Text, take_text(take_number(4)))); break;
        case 'U': push(make_text(Kind::Text, take_text(take_number(1)))); break;
        case 'V': push(make_text(Kind::Text, unescape(take_line()))); break;
        case 'X': push(make_text(Kind::Text, take_text(take_number(4)))); break;
        case 0x8c: push(make_text(Kind::Text, take_text(take_number(1)))); break;
        case 0x8d: push(make_text(Kind::Text, take_text(take_number(8)))); break;
        case 'B': push(make_text(Kind::Data, take_text(take_number(4)))); break;
        case 'C': push(make_text(Kind::Data, take_text(take_number(1)))); break;
        case 0x8e:
        case 0x96: push(make_text(Kind::Data, take_text(take_number(8)))); break;
        case ']': push(make(Kind::List)); break;
        case '}': push(make(Kind::Dict)); break;
        case 0x8f: push(make(Kind::Set)); break;
        case ')': push(make(Kind::Tuple)); break;
        case 'l': push(make_items(Kind::List, pop_to_mark())); break;
        case 'd': push(make_dict(pop_to_mark())); break;
        case 't': push(make_items(Kind::Tuple, pop_to_mark())); break;
        case 0x91: push(make_items(Kind::Set, pop_to_mark())); break;
        case 0x85:
        case 0x86:
        case 0x87: push(make_tuple(op - 0x84u)); break;
        case 'a': {
          PickleValue* v = pop();
          add(top(), Kind::List, {v});
          break;
        }
        case 's': {
          PickleValue* value = pop();
          PickleValue* key = pop();
          add(top(), Kind::Dict, {key, value});
          break;
        }
        case 'e':
        case 0x90:
        case 'u': {
          const std::vector<PickleValue*> items = pop_to_mark();
          add(top(), op == 'e' ? Kind::List : op == 'u' ? Kind::Dict : Kind::Set, items);
          break;
        }
        case 'c': {
          const std::string module = take_line(), name = take_line();
          push(make_text(Kind::Global, modern_name(module, name)));
          break;
        }
        case 0x93: {
          const PickleValue* name = pop();
          const PickleValue* module = pop();
          check(name->kind == Kind::Text && module->kind == Kind::Text, "the name of a global is no text");
          push(make_text(Kind::Global, modern_name(module->text, name->text)));
          break;
        }
        case 'R':
        case 0x81: {
          const PickleValue* args = pop();
          const PickleValue* callable = pop();
          push(call(callable, args, op == 0x81));
          break;
        }
        case 0x92: {  // NEWOBJ_EX; the keyword arguments of an unknown class mean nothing here
          pop();
          const PickleValue* args = pop();
          const PickleValue* callable = pop();
          push(call(callable, args, true));
          break;
        }
        case 'i':
        case 'o': {  // class(*args) of protocol 0 and 1; an object alone when there are no arguments
          PickleValue* callable = nullptr;
          if (op == 'i') {
            const std::string module = take_line(), name = take_line();
            callable = make_text(Kind::Global, modern_name(module, name));
          }
          std::vector<PickleValue*> items = pop_to_mark();
          if (!callable) {
            check(!items.empty(), "what is called is missing");
            callable = items[0];
            items.erase(items.begin());
          }
          const bool bare = items.empty();
          push(call(callable, make_items(Kind::Tuple, std::move(items)), bare));
          break;
        }
        case 'b': {
          PickleValue* state = pop();
          PickleValue* v = top();
          check(v->kind == Kind::Call || v->kind == Kind::Object, "state is given to what takes none");
          v->state = state;
          break;
        }
        case 'P': push(make_items(Kind::Persistent, {make_text(Kind::Text, take_line())})); break;
        case 'Q': {
          PickleValue* id = pop();
          push(make_items(Kind::Persistent, {id}));
          break;
        }
        case 'p': remember(parse<uint64_t>(take_line())); break;
        case 'q': remember(take_number(1)); break;
        case 'r': remember(take_number(4)); break;
        case 0x94: remember(memo.size()); break;
        case 'g': recall(parse<uint64_t>(take_line())); break;
        case 'h': recall(take_number(1)); break;
        case 'j': recall(take_number(4)); break;
        case 0x82:
        case 0x83:
        case 0x84: fail("an extension code, which stands for a class that only the writer knows");
        case 0x97:
        case 0x98: fail("a buffer that is not in the file");
        default: fail(fmt::format("{:#04x} is no operation of a pickle", op));
      }
    }
  }
};

PickleValue* Pickle::read(const std::string& path, int64_t off_bytes, Bytes bytes, int64_t* n_used) {
  PickleReader reader{*this, path, off_bytes, bytes, 0, 0, {}, {}, {}};
  PickleValue* v = reader.run();
  if (n_used) *n_used = static_cast<int64_t>(reader.at);
  return v;
}

bool pickle_bytes(const PickleValue& v, std::string& out) {
  if (v.kind == Kind::Data || v.kind == Kind::Text) {
    out = v.text;
    return true;
  }
  if (!v.is(Kind::Call, "_codecs encode") || v.items.empty() || v.items[0]->kind != Kind::Text) return false;
  const std::string& text = v.items[0]->text;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (c >= 0x80 && ((c & 0xFC) != 0xC0 || i + 1 == text.size())) return false;
    out += c < 0x80 ? text[i] : static_cast<char>(c << 6 | (static_cast<uint8_t>(text[i + 1]) & 63));
    i += c >= 0x80;
  }
  return true;
}

}  // namespace whit::io
