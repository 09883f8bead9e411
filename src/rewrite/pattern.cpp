#include "rewrite/pattern.h"

namespace whit::pat {
const PatNode* skip(const PatNode* a) {
  const PatNode* next = a + 1;
  for (unsigned left = a->kind == PatKind::Node ? a->n_src : 0; left > 0; --left) next = skip(next);
  return next;
}

void pattern_error(const char* what) { raise(ErrorKind::Internal, "[rewrite] {}", what); }

}  // namespace whit::pat
