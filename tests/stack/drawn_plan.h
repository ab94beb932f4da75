#pragma once
// Random plans of whole iterations: any layer (tests/layer/layer_space.h), 1 to 4 of them, 1 to 4 micro-batches, 1 and
// 2 stages, both pipeline orders, any decision that a schedule has.
#include "moe/plan/plan.h"
#include "tests/layer/layer_space.h"

namespace moe {

/// Layers in float64 that at most four ranks have, covering what they can be made of.
std::vector<layer_space::Point> drawn_layers(size_t count, uint64_t seed);

/// Throws Unsupported where the schedule can't run such layers. `vocabulary`: of a model; 0: layers alone.
Plan drawn_plan(const layer_space::Point& point, uint64_t seed, int64_t vocabulary = 0);

}  // namespace moe
