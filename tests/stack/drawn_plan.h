#pragma once
// Random plans of whole iterations: any layer (tests/layer/layer_space.h), 1 to 4 of them, 1 to 4 micro-batches, 1 and
// 2 stages, both pipeline orders, any decision that a schedule has, every third with offloaded experts.
#include "moe/plan/plan.h"
#include "tests/layer/layer_space.h"

namespace moe {

/// Returns layers in float64 on at most four ranks, which cover what layers can be made of.
std::vector<layer_space::Point> drawn_layers(size_t count, uint64_t seed);

/// Returns a plan of such layers. Throws Unsupported where the schedule can't run them. `vocabulary`: of a model; 0:
/// layers alone.
Plan drawn_plan(const layer_space::Point& point, uint64_t seed, int64_t vocabulary = 0);

/// A whole iteration in the order that random prices make best (moe/search/wave.h), and one pass after the other with
/// the same degrees.
struct DrawnWave {
  Plan wave, plain;
};
/// Returns plans of such layers, whatever schedule the point has. Throws what drawn_plan does.
DrawnWave drawn_wave(const layer_space::Point& point, uint64_t seed, int64_t vocabulary = 0);

}  // namespace moe
