#include "tests/layer/graph_checks.h"

#include <ATen/ATen.h>

namespace moe {

at::Tensor graph_leaf(TensorView t) {
  const at::Tensor view =
      at::from_blob(t.data(), {t.size(0), t.elements() / std::max<int64_t>(t.size(0), 1)}, at::kDouble);
  return view.clone().set_requires_grad(true);
}

double error_of(TensorView found, const at::Tensor& expected) {
  require_equal(found.elements(), expected.numel(), "elements");
  if (expected.numel() == 0) return 0;
  const at::Tensor values = at::from_blob(found.data(), expected.sizes(), at::kDouble);
  const double error = (values - expected.detach()).abs().max().item<double>();
  return error / std::max(expected.detach().abs().max().item<double>(), 1e-300);
}

at::Tensor part_of(const at::Tensor& whole, const Parameter& part) {
  at::Tensor t = whole.reshape({part.axes[0].total, part.axes[1].total, part.axes[2].total});
  for (int axis = 0; axis < 3; ++axis) {
    const ShardRange& share = part.axes[axis];
    t = t.narrow(axis, share.first, share.count);
  }
  return t.contiguous();
}

double difference_error(const at::Tensor& leaf, const std::function<at::Tensor()>& loss) {
  constexpr double kStep = 1e-5;
  const at::Tensor gradient = leaf.grad().contiguous();
  double *values = leaf.mutable_data_ptr<double>(), worst = 0;
  for (int64_t i = 0; i < leaf.numel(); i += 1 + leaf.numel() / 40) {
    const double before = values[i];
    const auto at_value = [&](double value) {
      values[i] = value;
      return loss().item<double>();
    };
    const double slope = (at_value(before + kStep) - at_value(before - kStep)) / (2 * kStep);
    values[i] = before;
    worst = std::max(worst, std::abs(slope - gradient.const_data_ptr<double>()[i]));
  }
  return worst / gradient.abs().max().item<double>();
}

double gradient_error(std::span<const Parameter> parts, const std::map<std::string, at::Tensor>& weights) {
  double worst = 0;
  for (const Parameter& p : parts) worst = std::max(worst, error_of(p.gradient, part_of(weights.at(p.name).grad(), p)));
  return worst;
}

}  // namespace moe
