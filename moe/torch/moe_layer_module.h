#pragma once
// One rank's layer as a torch::nn::Module: its weights are parameters that any optimizer updates in place, and its
// forward and backward run the plan's tasks.
//
// Tensors are CPU tensors of the layer's element types. They share the memory of a layer on the CPU. For a layer on a
// GPU, each forward copies input and weights to the GPU and the output back, and each backward copies the gradients
// back.
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
  /// Makes the module of a layer. `plan` has forward and backward of the layer's case and flow (build_plan). The
  /// streams of `device` run the tasks; null: the CPU or the first GPU, depending on the layer's memory. `alone` is
  /// locked during forward and backward, so that layers that share it never run concurrently. Throws as LayerBinding
  /// and make_device do.
  MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan, std::unique_ptr<Device> device = nullptr,
                 RankLosses losses = RankLosses::summed,
                 std::shared_ptr<std::recursive_mutex> alone = std::make_shared<std::recursive_mutex>());

  /// Returns y from x, both (held tokens, M), or with several axes for the tokens; x of any type is converted. All
  /// ranks call it, and the backward of its result. Only the last forward's activations are kept: the backward of an
  /// older forward runs that forward again first. A weight's gradient is the derivative of the loss over all distinct
  /// tokens, and of the gate's auxiliary losses, whole on every rank that holds the weight. In flows that keep tokens
  /// on all MP ranks, these ranks must have the same loss, which counts once.
  torch::Tensor forward(const torch::Tensor& x) { return forward(x, weights_); }
  /// Computes with these weights instead of the module's parameters, in the same order and shapes. Weights with other
  /// memory share the layer's from then on; tensors that shared it before keep their values.
  torch::Tensor forward(const torch::Tensor& x, const std::vector<torch::Tensor>& weights);

  /// Sets the step of later forwards (MoeLayer::begin_step), except forwards that a backward runs again.
  void begin_step(uint64_t step, bool noisy);
  /// Returns whether a backward is currently running a forward again.
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
  /// Sets a function that is called with one line about an exception of a backward, before the exception leaves the
  /// backward.
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
