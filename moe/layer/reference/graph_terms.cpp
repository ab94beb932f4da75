#include "moe/layer/reference/detail/graph_terms.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace moe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

thread_local bool measures_terms = false;

struct Use : Function<Use> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.view_as(x); }
  static tensor_list backward(AutogradContext*, const tensor_list& d) { return {measures_terms ? d[0].abs() : d[0]}; }
};

struct Product : Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a, const at::Tensor& b) {
    context->save_for_backward({a, b});
    return at::matmul(a, b);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& d) {
    const auto saved = context->get_saved_variables();
    const auto times = [](const at::Tensor& x, const at::Tensor& y) {
      return measures_terms ? at::matmul(x.square(), y.square()).sqrt() : at::matmul(x, y);
    };
    return {context->needs_input_grad(0) ? times(d[0], saved[1].transpose(-2, -1)) : at::Tensor(),
            context->needs_input_grad(1) ? times(saved[0].transpose(-2, -1), d[0]) : at::Tensor()};
  }
};

}  // namespace

TermSizes::TermSizes() { measures_terms = true; }
TermSizes::~TermSizes() { measures_terms = false; }

at::Tensor use(const at::Tensor& x) { return Use::apply(x); }
at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return Product::apply(a, b); }
at::Tensor repeated(const at::Tensor& vector, int64_t count) {
  return product(at::ones({count, 1}, vector.options()), vector.reshape({1, -1}));
}

at::Tensor softmax_of(const at::Tensor& x, int64_t axis) {
  const at::Tensor powers = at::exp(x - x.detach().amax(axis, true));
  return use(powers) / use(use(powers).sum(axis, true));
}

at::Tensor log_softmax_of(const at::Tensor& x, int64_t axis) {
  return use(x) - use(at::logsumexp(use(x), {axis}, true));
}

}  // namespace moe
