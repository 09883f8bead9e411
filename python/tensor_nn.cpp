// Tensor: linear algebra, convolutions, pools, normalisations, attention, losses.
#include "convert.h"

namespace whit::python {
namespace {

Tensor optional_or_undefined(nb::handle h, const char* op) { return h.is_none() ? Tensor() : to_tensor(h, op); }
std::optional<IntList> optional_ints(nb::handle h, const char* op) { return h.is_none() ? std::nullopt : std::optional(to_ints(h, op)); }

PoolOptions pool_options(nb::handle kernel, nb::handle stride, nb::handle dilation, nb::handle padding, bool ceil_mode,
                         bool count_include_pad = true) {
  return {.kernel_size = to_ints(kernel, "pool2d"),
          .stride = optional_ints(stride, "pool2d"),
          .dilation = to_ints(dilation, "pool2d"),
          .padding = to_ints(padding, "pool2d"),
          .ceil_mode = ceil_mode,
          .count_include_pad = count_include_pad};
}

}  // namespace

void bind_tensor_nn(TensorClass& t) {
  for (const char* name : {"dot", "image_dot"})
    t.def(
        name, [](const Tensor& x, nb::handle w, nb::handle d) { return x.dot(to_tensor(w, "dot"), to_optional_dtype(d)); }, nb::arg("w"),
        nb::arg("dtype") = nb::none());
  t.def(
       "matmul",
       [](const Tensor& x, nb::handle y, bool reverse, nb::handle d) {
         const Tensor o = to_tensor(y, "matmul");
         return reverse ? o.dot(x, to_optional_dtype(d)) : x.dot(o, to_optional_dtype(d));
       },
       nb::arg("x"), nb::arg("reverse") = false, nb::arg("dtype") = nb::none())
      .def_static(
          "einsum",
          [](const std::string& formula, nb::args ops, nb::handle d) {
            nb::object seq = ops.size() == 1 && (PyTuple_Check(ops[0].ptr()) || PyList_Check(ops[0].ptr())) ? nb::object(ops[0]) : nb::object(ops);
            return Tensor::einsum(formula, to_tensors(seq, "einsum"), to_optional_dtype(d));
          },
          nb::arg("formula"), nb::arg("operands"), nb::kw_only(), nb::arg("dtype") = nb::none())
      .def(
          "linear",
          [](const Tensor& x, const Tensor& w, nb::handle b, nb::handle d) {
            return x.linear(w, optional_or_undefined(b, "linear"), to_optional_dtype(d));
          },
          nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("dtype") = nb::none())
      .def(
          "sequential",
          [](nb::object x, nb::handle fxns) -> TensorObject {
            for (nb::handle f : nb::borrow<nb::iterable>(fxns)) x = f(x);
            return x;
          },
          nb::arg("ll"))
      .def("qr",
           [](const Tensor& x) {
             auto [q, r] = x.qr();
             return TensorPair(nb::make_tuple(q, r));
           })
      .def(
          "svd", [](const Tensor& x, bool full) { return tensors_to_tuple(x.svd(full)); }, nb::arg("full_matrices") = true)
      .def(
          "keccak",
          [](const Tensor& x, nb::handle cfg) {
            if (nb::isinstance<nb::str>(cfg)) return x.keccak(nb::cast<std::string_view>(cfg));
            const IntList pair = to_ints(cfg, "keccak");
            WHIT_USER(pair.size() == 2, Value, "[keccak] {} numbers; expected a name or (rate, suffix)", pair.size());
            return x.keccak(pair[0], pair[1]);
          },
          nb::arg("cfg") = "sha3_256")
      .def("hash", &Tensor::hash)
      .def(
          "newton_schulz",
          [](const Tensor& x, int64_t steps, nb::handle params, double eps) {
            std::vector<double> p;
            for (nb::handle v : nb::borrow<nb::iterable>(params)) p.push_back(nb::cast<double>(nb::float_(v)));
            return x.newton_schulz(steps, p, eps);
          },
          nb::arg("steps"), nb::arg("params"), nb::arg("eps") = 1e-7);
  for (const char* name : {"conv2d", "image_conv2d"})
    t.def(
        name,
        [](const Tensor& x, const Tensor& w, nb::handle b, int64_t groups, nb::handle stride, nb::handle dilation, nb::handle padding, nb::handle d) {
          return x.conv2d(w, optional_or_undefined(b, "conv2d"),
                          {.groups = groups,
                           .stride = to_ints(stride, "conv2d"),
                           .dilation = to_ints(dilation, "conv2d"),
                           .padding = to_ints(padding, "conv2d"),
                           .dtype = to_optional_dtype(d)});
        },
        nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("groups") = 1, nb::arg("stride") = 1, nb::arg("dilation") = 1,
        nb::arg("padding") = 0, nb::arg("dtype") = nb::none());
  t.def(
      "conv_transpose2d",
      [](const Tensor& x, const Tensor& w, nb::handle b, int64_t groups, nb::handle stride, nb::handle dilation, nb::handle padding, nb::handle out) {
        return x.conv_transpose2d(w, optional_or_undefined(b, "conv_transpose2d"),
                                  {.groups = groups,
                                   .stride = to_ints(stride, "conv_transpose2d"),
                                   .dilation = to_ints(dilation, "conv_transpose2d"),
                                   .padding = to_ints(padding, "conv_transpose2d"),
                                   .output_padding = to_ints(out, "conv_transpose2d")});
      },
      nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("groups") = 1, nb::arg("stride") = 1, nb::arg("dilation") = 1, nb::arg("padding") = 0,
      nb::arg("output_padding") = 0);

  nb::object two = nb::make_tuple(2, 2);
  t.def(
       "avg_pool2d",
       [](const Tensor& x, nb::handle k, nb::handle s, nb::handle d, nb::handle p, bool ceil_mode, bool include) {
         return x.avg_pool2d(pool_options(k, s, d, p, ceil_mode, include));
       },
       nb::arg("kernel_size") = two, nb::arg("stride") = nb::none(), nb::arg("dilation") = 1, nb::arg("padding") = 0, nb::arg("ceil_mode") = false,
       nb::arg("count_include_pad") = true)
      .def(
          "max_pool2d",
          [](const Tensor& x, nb::handle k, nb::handle s, nb::handle d, nb::handle p, bool ceil_mode, bool indices) -> AnyObject {
            const PoolOptions o = pool_options(k, s, d, p, ceil_mode);
            if (!indices) return nb::cast(x.max_pool2d(o));
            auto [v, i] = x.max_pool2d_indices(o);
            return nb::make_tuple(v, i);
          },
          nb::arg("kernel_size") = two, nb::arg("stride") = nb::none(), nb::arg("dilation") = 1, nb::arg("padding") = 0, nb::arg("ceil_mode") = false,
          nb::arg("return_indices") = false)
      .def(
          "max_unpool2d",
          [](const Tensor& x, const Tensor& i, nb::handle k, nb::handle s, nb::handle d, nb::handle p, nb::handle size) {
            return x.max_unpool2d(i, pool_options(k, s, d, p, false), optional_ints(size, "max_unpool2d"));
          },
          nb::arg("indices"), nb::arg("kernel_size") = two, nb::arg("stride") = nb::none(), nb::arg("dilation") = 1, nb::arg("padding") = 0,
          nb::arg("output_size") = nb::none())
      .def(
          "interpolate",
          [](const Tensor& x, nb::handle size, const std::string& mode, bool align) {
            return x.interpolate(to_ints(size, "interpolate"), mode, align);
          },
          nb::arg("size"), nb::arg("mode") = "linear", nb::arg("align_corners") = false)
      .def(
          "layernorm", [](const Tensor& x, nb::handle a, double eps) { return x.layernorm(to_ints(a, "layernorm"), eps); }, nb::arg("axis") = -1,
          nb::arg("eps") = 1e-5)
      .def(
          "batchnorm",
          [](const Tensor& x, nb::handle w, nb::handle b, const Tensor& mean, const Tensor& invstd, nb::handle a) {
            return x.batchnorm(optional_or_undefined(w, "batchnorm"), optional_or_undefined(b, "batchnorm"), mean, invstd, to_ints(a, "batchnorm"));
          },
          nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("mean"), nb::arg("invstd"), nb::arg("axis") = 1)
      .def(
          "scaled_dot_product_attention",
          [](const Tensor& q, const Tensor& k, const Tensor& v, nb::handle mask, double p, bool causal, bool gqa) {
            const Tensor m = optional_or_undefined(mask, "scaled_dot_product_attention");
            return q.scaled_dot_product_attention(k, v,
                                                  {.attn_mask = m.defined() ? &m : nullptr, .dropout_p = p, .is_causal = causal, .enable_gqa = gqa});
          },
          nb::arg("key"), nb::arg("value"), nb::arg("attn_mask") = nb::none(), nb::arg("dropout_p") = 0.0, nb::arg("is_causal") = false,
          nb::arg("enable_gqa") = false);

  t.def(
       "binary_crossentropy",
       [](const Tensor& x, nb::handle y, const std::string& r) { return x.binary_crossentropy(to_tensor(y, "binary_crossentropy"), r); },
       nb::arg("Y"), nb::arg("reduction") = "mean")
      .def(
          "binary_crossentropy_logits",
          [](const Tensor& x, nb::handle y, const std::string& r, nb::handle w) {
            return x.binary_crossentropy_logits(to_tensor(y, "binary_crossentropy_logits"), r,
                                                optional_or_undefined(w, "binary_crossentropy_logits"));
          },
          nb::arg("Y"), nb::arg("reduction") = "mean", nb::arg("pos_weight") = nb::none())
      .def(
          "sparse_categorical_crossentropy",
          [](const Tensor& x, const Tensor& y, int64_t ignore, double smoothing, const std::string& r) {
            return x.sparse_categorical_crossentropy(y, ignore, smoothing, r);
          },
          nb::arg("Y"), nb::arg("ignore_index") = -1, nb::arg("label_smoothing") = 0.0, nb::arg("reduction") = "mean")
      .def(
          "cross_entropy", [](const Tensor& x, const Tensor& y, const std::string& r, double smoothing) { return x.cross_entropy(y, r, smoothing); },
          nb::arg("Y"), nb::arg("reduction") = "mean", nb::arg("label_smoothing") = 0.0)
      .def(
          "nll_loss",
          [](const Tensor& x, const Tensor& y, nb::handle w, std::optional<int64_t> ignore, const std::string& r) {
            return x.nll_loss(y, optional_or_undefined(w, "nll_loss"), ignore, r);
          },
          nb::arg("Y"), nb::arg("weight") = nb::none(), nb::arg("ignore_index") = nb::none(), nb::arg("reduction") = "mean");
}

}  // namespace whit::python
