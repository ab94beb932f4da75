#pragma once
// A lower bound on a whole model's iteration: all micro-batches, layers and stages under one schedule.
#include <span>

#include "moe/base/enum_array.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/bounds.h"

namespace moe {

/// Returns a lower bound on the seconds that a planned step adds to a stage's passes without contention: its sums share
/// the gradients' network, an optimizer task waits for the last of them, and ZeRO 1's gathers come after both. The
/// first sum overlaps with the collective that ends a backward.
double step_least_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int stage = 0);

/// Returns a lower bound on the seconds of an iteration at these degrees of both phases (by default all degrees),
/// wherever gradients are sent; `pricer` prices one layer of the model. Micro-batches may overlap: a layer's tasks wait
/// for the previous layer of the same micro-batch, and on each lane for the previous pass.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   BoundedDegrees degrees = {});
/// Returns the same; `shapes` caches what the bounds of many models share.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundedDegrees degrees,
                   BoundShapes& shapes);

/// Returns a lower bound for all degrees: the seconds of the busiest lane of any stage, from its first task to its last
/// one in every pass. Before a stage's first pass, a forward runs through a chunk of each earlier stage, and after its
/// last pass a backward. It is much faster to compute than model_bound, and excludes the step.
double busiest_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundShapes& shapes);

/// Returns a lower bound on the seconds of the iteration over these degrees of forward and backward, which are equal if
/// the schedule requires it: closer than model_bound, because it replays single passes.
double replayed_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                      EnumArray<Phase, std::span<const int>, 2> degrees, BoundShapes& shapes);

}  // namespace moe
