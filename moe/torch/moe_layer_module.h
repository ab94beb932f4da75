#pragma once
// One rank's layer as a torch::nn::Module: its weights are parameters that any optimizer updates in place, its forward
// and backward the plan's tasks.
//
// Tensors are the CPU's, of the layer's element types. What a layer has in the CPU's memory they share with it; where
// it is on a GPU, each forward brings input and weights there, and its output and the gradients back.
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

/// What a loss is of a batch that lies on several ranks: the sum of their losses, or their mean, as
/// DistributedDataParallel has it.
enum class RankLosses : uint8_t { summed, averaged };

class MoeLayerModule : public torch::nn::Module {
 public:
  /// Makes the module of a layer. `plan`: of the layer's case and flow, forward and backward (build_plan). `device`:
  /// whose streams run the tasks; null: the CPU, or the first GPU, by where the layer's memory is. `alone`: held during
  /// forward and backward, which so wait for each other, and for others who hold it. Throws as LayerBinding and
  /// make_device do.
  MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan, std::unique_ptr<Device> device = nullptr,
                 RankLosses losses = RankLosses::summed,
                 std::shared_ptr<std::recursive_mutex> alone = std::make_shared<std::recursive_mutex>());

  /// Returns y from x, both (held tokens, M), or with several axes for the tokens; x of any type is converted. All
  /// ranks call it, and the backward of what it returns. One forward's activations are kept: a backward of an older one
  /// runs its forward again first. A weight's gradient is the derivative of the loss over all distinct tokens, and of
  /// the gate's auxiliary losses, whole on every rank that holds the weight. In flows that keep tokens on all MP ranks
  /// these must have the same loss, which counts once.
  torch::Tensor forward(const torch::Tensor& x) { return forward(x, weights_); }
  /// Computes with these weights instead of the module's parameters, whose order and shapes they have. Those with
  /// memory of their own share the layer's from then on; whoever shared it before keeps its values.
  torch::Tensor forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights);

  /// Sets the step of forwards from now on (MoeLayer::begin_step), but of those that a backward runs again.
  void begin_step(uint64_t step, bool noisy);
  /// Returns whether a backward is running a forward again.
  bool repeats() const;

  MoeLayer& layer() { return *layer_; }

  /// Wall-clock seconds that the runner took of the last forward and of the last backward, its sums of gradients
  /// included; all else is the module's overhead.
  struct RunnerSeconds {
    double forward = 0, backward = 0;
  };
  RunnerSeconds runner_seconds() const;
  /// Returns how many backwards have run so far.
  int64_t backwards() const;
  /// Returns when each task of the last forward and of the last backward ran, from the start of each. After a forward.
  const std::vector<TaskTime>& task_times() const;
  /// Forgets the last forward's activations: a backward that needs them runs it again first.
  void forget_activations();
  /// Calls `told` with one line of what a backward throws, before it leaves the backward.
  void on_failed_backward(std::function<void(const std::string&)> told);

 private:
  class Backward;
  struct Noise;
  struct Runner;
  std::shared_ptr<MoeLayer> layer_;
  std::shared_ptr<Runner> runner_;
  std::vector<torch::Tensor> weights_;  // those registered
};

}  // namespace moe
