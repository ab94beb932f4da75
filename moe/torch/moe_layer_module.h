#pragma once
// One rank's layer as a torch::nn::Module: its weights are parameters that any optimizer updates in place, its forward
// and backward the plan's tasks.
#include <memory>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <vector>

#include "moe/layer/moe_layer.h"
#include "moe/plan/plan.h"

namespace moe {

class MoeLayerModule : public torch::nn::Module {
 public:
  /// `plan`: of the layer's case and flow, forward and backward (build_plan). Throws as LayerBinding does.
  MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan);

  /// y from x, both (held tokens, M) of the layer's element type. All ranks call it, and the backward of what it
  /// returns; one forward's activations are kept, so a backward must follow its own forward. A weight's gradient is
  /// the derivative of the loss over all distinct tokens, and of the gate's auxiliary losses, whole on every rank that
  /// holds the weight. In flows that keep tokens on all MP ranks these must have the same loss, which counts once.
  torch::Tensor forward(const torch::Tensor& x);

  MoeLayer& layer() { return *layer_; }

 private:
  class Backward;
  struct Runner;
  std::shared_ptr<MoeLayer> layer_;
  std::shared_ptr<Runner> runner_;
  std::vector<torch::Tensor> weights_;  // those registered
};

}  // namespace moe
