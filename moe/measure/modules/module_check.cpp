// Checks of single modules before they are timed: results are finite and repeatable, and gradients are the slope of the
// forward.
#include <cmath>
#include <cstring>

#include "moe/layer/parameter.h"
#include "moe/measure/modules/module_run.h"
#include "moe/prices/modules.h"
#include "moe/tensor/element.h"

namespace moe::measure {
namespace {

std::vector<TensorView> results(const ModuleRun& module, Phase phase) {
  if (phase == Phase::backward) return {module.input_gradient()};
  std::vector<TensorView> out;
  for (const auto& [value, gradient] : module.outputs()) out.push_back(value);
  return out;
}

std::vector<std::byte> bytes_of_all(const std::vector<TensorView>& tensors) {
  std::vector<std::byte> all;
  for (const TensorView& t : tensors) all.insert(all.end(), t.as<std::byte>(), t.as<std::byte>() + t.bytes());
  return all;
}

double inner(TensorView a, TensorView b) {
  double sum = 0;
  with_element(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < a.elements(); ++i) sum += double(a.as<T>()[i]) * double(b.as<T>()[i]);
  });
  return sum;
}

double loss(const ModuleRun& module) {
  double sum = 0;
  for (const auto& [value, gradient] : module.outputs()) sum += inner(value, gradient);
  return sum;
}

}  // namespace

LayerCase small_module_case() {
  LayerShape layer;
  layer.batch = 2;
  layer.seq = 8;
  layer.model_dim = 8;
  layer.hidden = 12;
  layer.heads = 2;
  layer.experts = 3;
  layer.dtype = DType::float64;
  return complete(layer, {}, Rounding::ragged);
}

std::string repeated_run_error(ModuleRun& module, Phase phase) {
  const auto found = results(module, phase);
  double squares = 0;
  for (const TensorView& t : found) squares += inner(t, t);
  if (!std::isfinite(squares)) return "found numbers that are not finite";
  if (squares == 0) return "found only zeros, expected other numbers too";
  const auto first = bytes_of_all(found);
  module.prepare(phase);
  module.run(phase);
  return bytes_of_all(results(module, phase)) == first ? ""
                                                       : "found different numbers in a second run, expected equal ones";
}

std::string slope_error(ModuleRun& module) {
  constexpr double kStep = 1e-5, kTolerance = 1e-6;
  module.prepare(Phase::backward);
  module.run(Phase::backward);
  const TensorView x = module.input(), dx = module.input_gradient();
  const Tensor v({x.size(0), x.size(1)}, x.dtype());
  fill_input(v, {0, x.size(0), x.size(0)}, {.seed = 7});
  const double slope = inner(dx, v), size = std::sqrt(inner(dx, dx) * inner(v, v));
  const auto loss_after = [&](double step) {
    for (int64_t i = 0; i < x.elements(); ++i) x.as<double>()[i] += step * v.view().as<double>()[i];
    module.run(Phase::forward);
    return loss(module);
  };
  const double above = loss_after(kStep), below = loss_after(-2 * kStep), expected = (above - below) / (2 * kStep);
  if (std::abs(slope - expected) <= kTolerance * size) return {};
  return fmt::format("found a slope of {} by its gradient, expected {}", slope, expected);
}

std::string gradient_error(std::string_view name) {
  const LayerCase small = small_module_case();
  const std::optional<Module> module = module_of(name);
  // Modules that round have no slope; they are verified only as part of layers.
  if (module && (module->kind == TaskKind::dispatch || in_fp8(with_module(small, *module).layer.ffn))) return {};
  return slope_error(*make_module_run(name, small));
}

}  // namespace moe::measure
