#pragma once
// Computes the reference of layers that feed each other, over several micro-batches.
#include <functional>
#include <vector>

#include "moe/layer/reference/reference.h"
#include "moe/shape/dense_layers.h"

namespace moe {

/// At [layer][micro-batch]: each layer's output, the gradient of its input, and its choices; its weights' gradients are
/// sums over all micro-batches.
using StackReference = std::vector<std::vector<LayerReference>>;

/// Computes forward and backward of `layers` layers over `micro_batches`. Loss = sum over micro-batches of <the last
/// layer's output, its dY>, and all auxiliary losses. `seed` is that of the first layer and first micro-batch;
/// `choices` returns those of a layer and micro-batch.
StackReference reference_stack(const LayerCases& cases, int layers, int micro_batches, const LayerSeed& seed,
                               const std::function<LayerChoices(int layer, int micro_batch)>& choices = {});

/// A model's ends around the layers (moe/model/model_ends.h): embedding, places, norm, head, cross-entropy. By
/// micro-batch, (samples of all DP groups, seq), it holds the input tokens and the targets; target -1: none.
struct ReferenceEnds {
  int64_t vocabulary = 0;
  bool tied = false;  // whether the output projection is the embedding
  std::vector<std::vector<int32_t>> inputs = {}, targets = {};
};
struct ModelReference {
  StackReference layers;
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;  // gradients of the ends' weights, by name
  TermSizesByTensor sizes = {};                          // term sizes of those gradients
};
/// Computes forward and backward of a model, whose loss is that of the ends plus the auxiliary losses.
ModelReference reference_model(const LayerCases& cases, int layers, const LayerSeed& seed, const ReferenceEnds& ends,
                               const std::function<LayerChoices(int layer, int micro_batch)>& choices = {});

}  // namespace moe
