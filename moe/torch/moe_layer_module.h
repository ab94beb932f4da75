#pragma once
// One rank's layer as a torch::nn::Module: its weights are parameters that any optimizer updates in place, its forward
// and backward the plan's tasks.
//
// Tensors are the CPU's, of the layer's element types. If the layer's memory is the CPU's, tensors share it; if the
// layer is on a GPU, each forward copies input and weights there, and its output and the gradients back.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <vector>

#include "moe/device/device.h"
#include "moe/exec/executor.h"
#include "moe/layer/moe_layer.h"
#include "moe/plan/plan.h"

namespace moe {

/// The loss of a batch that lies on several ranks: the sum of the ranks' losses or, as in DistributedDataParallel,
/// their mean.
enum class RankLosses : uint8_t { summed, averaged };

class MoeLayerModule : public torch::nn::Module {
 public:
  /// Makes the module of a layer. `plan`: of the layer's case and flow, forward and backward (build_plan). `device`:
  /// its streams run the tasks; null: the CPU, or the first GPU, by where the layer's memory is. `alone`: held during
  /// forward and backward, so that these wait for each other and for others that hold it. Throws as LayerBinding and
  /// make_device do.
  MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan, std::unique_ptr<Device> device = nullptr,
                 RankLosses losses = RankLosses::summed,
                 std::shared_ptr<std::recursive_mutex> alone = std::make_shared<std::recursive_mutex>());

  /// Returns y from x, both (held tokens, M), or with several axes for the tokens; x of any type is converted. All
  /// ranks call it, and the backward of its result. Only one forward's activations are kept: a backward of an older one
  /// runs its forward again first. A weight's gradient is the derivative of the loss over all distinct tokens, and of
  /// the gate's auxiliary losses, whole on every rank that holds the weight. In flows that keep tokens on all MP ranks,
  /// these ranks must have the same loss, which counts once.
  torch::Tensor forward(const torch::Tensor& x) { return forward(x, weights_); }
  /// Computes with these weights instead of the module's parameters, in the same order and shapes. Weights with other
  /// memory share the layer's from then on; tensors that shared it before keep their values.
  torch::Tensor forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights);

  /// Sets the step of later forwards (MoeLayer::begin_step), except those that a backward runs again.
  void begin_step(uint64_t step, bool noisy);
  /// Returns whether a backward is running a forward again.
  bool repeats() const;

  MoeLayer& layer() { return *layer_; }

  /// Wall-clock seconds of the runner in the last forward and in the last backward, its sums of gradients included; the
  /// rest is the module's overhead.
  struct RunnerSeconds {
    double forward = 0, backward = 0;
  };
  RunnerSeconds runner_seconds() const;
  /// Returns the number of backwards so far.
  int64_t backwards() const;
  /// Returns the times of the tasks of the last forward and backward, from the start of each. Call it after a forward.
  const std::vector<TaskTime>& task_times() const;
  /// Drops the last forward's activations: a backward that needs them runs the forward again first.
  void forget_activations();
  /// Calls `told` with one line about an exception of a backward, before it leaves the backward.
  void on_failed_backward(std::function<void(const std::string&)> told);

 private:
  class Backward;
  struct Noise;
  struct Runner;
  std::shared_ptr<MoeLayer> layer_;
  std::shared_ptr<Runner> runner_;
  std::vector<torch::Tensor> weights_;  // the registered weights
};

}  // namespace moe
