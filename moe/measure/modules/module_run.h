#pragma once
// Runs a single sub-module of a layer on one rank, for a microbenchmark: any that the registries know.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"
#include "moe/prices/modules.h"

namespace moe::measure {

class ModuleRun {
 public:
  virtual ~ModuleRun() = default;
  /// Runs the forward, or the backward after one: what is timed.
  virtual void run(Phase phase) = 0;
  /// Prepares whatever run() needs and a layer would have done before it; this is not timed.
  void prepare(Phase phase);

  /// These return what the forward reads, and what the backward writes or adds to.
  TensorView input() const { return input_; }
  TensorView input_gradient() const { return d_input_; }
  /// Returns what the forward writes, and the gradients that the backward reads: pairs of equal size.
  virtual std::vector<std::pair<TensorView, TensorView>> outputs() const { return {{output_, d_output_}}; }

 protected:
  Tensor input_, output_, d_output_, d_input_;
};

/// Returns "attention", "attention:selective", "gate:gshard", "order:tutel", "i-order:tutel", "expert:gpt",
/// "hook:bf16", ...: all that a layer can be made of.
std::vector<std::string> registered_modules();

/// Returns the module of a rank of `shape`, alone: of one rank, so that it talks to no other. Throws BadInput for
/// unknown names, and for shapes that no layer can have.
std::unique_ptr<ModuleRun> make_module_run(std::string_view name, const LayerCase& shape);
/// These run a part that no registry knows yet. The gate's choices are of the kind that the layer's own gate makes.
std::unique_ptr<ModuleRun> make_gate_run(const GateRow& gate, const LayerCase& shape);
std::unique_ptr<ModuleRun> make_order_run(const OrderRow& order, bool way_back, const LayerCase& shape);
std::unique_ptr<ModuleRun> make_expert_run(const ExpertRow& expert, const LayerCase& shape);

/// Returns what is wrong with the last run of the phase; empty: it is finite, not all zeros, and running it again gives
/// the same numbers.
std::string repeated_run_error(ModuleRun& module, Phase phase);
/// Returns what is wrong with the gradient of a module of float64; empty: <input gradient, v> is the slope of <output,
/// output gradient> along v. The input is changed.
std::string slope_error(ModuleRun& module);
/// Checks the named module on a small layer; hooks have no gradient to check.
std::string gradient_error(std::string_view name);
LayerCase small_module_case();

}  // namespace moe::measure
