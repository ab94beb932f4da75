#pragma once
// Decisions within the memory that a rank of a cluster has.
#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"

namespace moe {

/// Returns the choice among what fits `capacity` bytes of a rank, of one layer; unknown: whatever is chosen fits.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity) {
  if (capacity)
    choice.fits = [capacity](const LayerCase& c, Flow flow) { return !misfit(layer_memory(c, flow), *capacity); };
  return choice;
}

/// Likewise of a model of such layers, with its embedding and output projection (0 tokens: without).
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ModelShape& model,
                                  int64_t vocabulary = 0, bool tied_embedding = false) {
  if (capacity)
    choice.fits = [=](const LayerCase& c, Flow flow) {
      MemoryRequest request = memory_request(model, c, flow);
      request.vocabulary = vocabulary;
      request.tied_embedding = tied_embedding;
      return !misfit(estimate_memory(request), *capacity);
    };
  return choice;
}

}  // namespace moe
