// How a UOp looks from Python: one object a node while anybody holds it, so that `is` compares nodes.
#pragma once
#include <nanobind/nanobind.h>

#include "ir/uop.h"

namespace whit::python {

/// What a Python UOp holds.
struct PyUOp {
  UOp u;
  explicit PyUOp(UOp node) : u(std::move(node)) {}
  ~PyUOp();
  PyUOp(const PyUOp&) = delete;
  PyUOp& operator=(const PyUOp&) = delete;
};
/// The object of a node; None for the null handle.
nanobind::object uop_object(const UOp& u);

}  // namespace whit::python

namespace nanobind::detail {
template <> struct type_caster<whit::UOp> {
  NB_TYPE_CASTER(whit::UOp, const_name("UOp"))

  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (!inst_check(src) || !type_check(src.type()) || src.type().ptr() != type<whit::python::PyUOp>().ptr()) return false;
    value = inst_ptr<whit::python::PyUOp>(src)->u;
    return true;
  }
  static handle from_cpp(const whit::UOp& u, rv_policy, cleanup_list*) noexcept { return whit::python::uop_object(u).release(); }
};
}  // namespace nanobind::detail
