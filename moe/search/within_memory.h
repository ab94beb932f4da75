#pragma once
// Keeps decisions within the memory that a rank of a cluster has.
#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"

namespace moe {

/// Returns the choice among those layers that fit `capacity` bytes of a rank; none: whatever is chosen fits.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity) {
  if (capacity)
    choice.fits = [capacity](const LayerCase& c, Flow flow) { return !misfit(layer_memory(c, flow), *capacity); };
  return choice;
}

/// Returns the choice among those layers of which a whole model fits.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ModelShape& model) {
  if (capacity)
    choice.fits = [capacity, model](const LayerCase& c, Flow flow) {
      return !misfit(estimate_memory(memory_request(model, c, flow)), *capacity);
    };
  return choice;
}

}  // namespace moe
