#pragma once
// A model's ends as differentiable functions of full weights (moe/model/model_ends.h). Includes LibTorch.
#include "moe/layer/reference/detail/graph_parts.h"
#include "moe/layer/reference/stack_reference.h"

namespace moe {

class EndsGraph {
 public:
  EndsGraph(const LayerCase& shape, const LayerSeed& seed, const ReferenceEnds& ends);
  /// Returns the first layer's input, (tokens, M).
  at::Tensor embed(int micro_batch) const;
  /// Returns a micro-batch's part of the mean loss over all of them; `output` is the last layer's, (tokens, M).
  at::Tensor add_loss(const at::Tensor& output, int micro_batch);
  double loss() const { return loss_; }
  const GraphWeights& weights() const { return weights_; }

 private:
  const LayerCase shape_;
  const LayerShape layer_;
  const ReferenceEnds& ends_;
  GraphWeights weights_;
  int64_t counted_ = 0;  // number of targets in all micro-batches
  double loss_ = 0;
};

}  // namespace moe
