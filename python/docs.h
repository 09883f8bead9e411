// Docstrings of Tensor: docs.def, by name.
#pragma once
#include <nanobind/nanobind.h>

#include <string_view>

#include "whit/tensor.h"

namespace whit::python {

/// The docstring of a member of Tensor, "" when docs.def has no row of that name. Lives as long as the process.
const char* doc_of(std::string_view name);

/// The class Tensor while it is built: each member takes its docstring from docs.def.
class TensorClass : public nanobind::class_<Tensor> {
 public:
  using Base = nanobind::class_<Tensor>;
  using Base::Base;

  template <class F, class... Extra> TensorClass& def(const char* name, F&& f, const Extra&... extra) {
    Base::def(name, std::forward<F>(f), extra..., doc_of(name));
    return *this;
  }
  template <class F, class... Extra> TensorClass& def_static(const char* name, F&& f, const Extra&... extra) {
    Base::def_static(name, std::forward<F>(f), extra..., doc_of(name));
    return *this;
  }
  template <class Getter, class... Extra> TensorClass& def_prop_ro(const char* name, Getter&& get, const Extra&... extra) {
    Base::def_prop_ro(name, std::forward<Getter>(get), extra..., doc_of(name));
    return *this;
  }
  template <class Getter, class Setter, class... Extra>
  TensorClass& def_prop_rw(const char* name, Getter&& get, Setter&& set, const Extra&... extra) {
    Base::def_prop_rw(name, std::forward<Getter>(get), std::forward<Setter>(set), extra..., doc_of(name));
    return *this;
  }
};

}  // namespace whit::python
