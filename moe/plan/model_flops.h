#pragma once
// FLOPs that a step of training needs, however it is spread over ranks: what model FLOPs utilisation counts.
#include <cstdint>

#include "moe/plan/dense_layers.h"

namespace moe {

/// Says how much a model has beside its layer's case: layers over all stages, and an output projection onto
/// `vocabulary` tokens (0: none).
struct ModelDepth {
  int layers = 1, micro_batches = 1;
  int64_t vocabulary = 0;
  DenseLayers dense = {};
};

/// Counts the GEMMs of a forward of all samples (B L tokens of each DP group and micro-batch), three times: a backward
/// has two of each. A token has attention's four projections and all L scores, whatever is masked; gate, k experts
/// (dropped or not) and shared expert, or a dense layer's feed-forward; the output projection. Nothing counts that is
/// computed again, or on several ranks alike. Source: Chowdhery et al., PaLM, 2022, appendix B. `shape`: complete.
double step_flops(const LayerCase& shape, const ModelDepth& depth);

}  // namespace moe
