#pragma once
// A single module of a layer on one rank, for microbenchmarks.
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
  /// Runs the forward, or the backward after a forward. This is timed.
  virtual void run(Phase phase) = 0;
  /// Prepares the inputs of run() that other parts of a layer would compute. This is not timed.
  void prepare(Phase phase);

  /// These return the forward's input, and the gradient that the backward writes or adds to.
  TensorView input() const { return input_; }
  TensorView input_gradient() const { return d_input_; }
  /// Returns pairs of equal size: an output of the forward, and its gradient, which the backward reads.
  virtual std::vector<std::pair<TensorView, TensorView>> outputs() const { return {{output_, d_output_}}; }

 protected:
  Tensor input_, output_, d_output_, d_input_;
};

/// Returns the names of all modules: "attention", "attention:selective", "gate:gshard", "order:tutel", "i-order:tutel",
/// "expert:gpt", "hook:bf16", ...
std::vector<std::string> registered_modules();

/// Returns the module of one rank of `shape`, which communicates with no other rank. Throws BadInput for unknown names
/// and invalid shapes.
std::unique_ptr<ModuleRun> make_module_run(std::string_view name, const LayerCase& shape);
/// These return runs of parts that need not be registered. Choices of the gate are of the same kind (Choices) as the
/// layer's own gate's.
std::unique_ptr<ModuleRun> make_gate_run(const GateRow& gate, const LayerCase& shape);
std::unique_ptr<ModuleRun> make_order_run(const OrderRow& order, bool is_unpermute, const LayerCase& shape);
std::unique_ptr<ModuleRun> make_expert_run(const ExpertRow& expert, const LayerCase& shape);

/// Returns the error of the last run of a phase: its numbers are not finite, all zeros, or different in a second run.
/// Empty if there is none.
std::string repeated_run_error(ModuleRun& module, Phase phase);
/// Returns the error of the gradient of a float64 module: <input gradient, v> is not the slope of <output, output
/// gradient> along v. Empty if it is correct. Changes the input.
std::string slope_error(ModuleRun& module);
/// Returns the slope_error() of the named module on a small layer; empty for hooks and FP8 experts, which round.
std::string gradient_error(std::string_view name);
LayerCase small_module_case();

}  // namespace moe::measure
