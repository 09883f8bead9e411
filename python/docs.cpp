#include "docs.h"

#include <string>
#include <unordered_map>

namespace whit::python {
namespace {

struct Row {
  const char* name;
  const char* doc;
  const char* example;
};
constexpr Row kRows[] = {
#define WHIT_DOC(name, doc, example) {name, doc, example},
#include "docs.def"
#undef WHIT_DOC
};

std::unordered_map<std::string_view, std::string> all_docs() {
  std::unordered_map<std::string_view, std::string> out;
  for (const Row& r : kRows) out.emplace(r.name, std::string(r.doc) + "\n\n" + r.example);
  return out;
}

}  // namespace

const char* doc_of(std::string_view name) {
  static const auto* const docs = new std::unordered_map<std::string_view, std::string>(all_docs());
  const auto it = docs->find(name);
  return it == docs->end() ? "" : it->second.c_str();
}

}  // namespace whit::python
