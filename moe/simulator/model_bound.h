#pragma once
// Lower bounds on the seconds of a whole model's iteration: all micro-batches, layers and stages under one schedule.
#include <span>

#include "moe/base/enum_array.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/bounds.h"

namespace moe {

/// Returns a lower bound on the seconds that a planned step adds after a stage's passes, without contention: its sums
/// share the gradients' network, an optimizer task waits for the last of them, and ZeRO 1's gathers follow both. The
/// first sum may overlap with the collective that ends a backward.
double min_step_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int stage = 0);

/// Returns a lower bound on the seconds of an iteration at these degrees of both phases (by default all degrees), for
/// all placements of gradients. `pricer` prices one layer of the model. Micro-batches may overlap: a pass waits only
/// for the previous layer of the same micro-batch and, on each lane, for the previous pass.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   BoundedDegrees degrees = {});
/// The same; `shapes` caches data that bounds of several models share.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundedDegrees degrees,
                   BoundShapes& shapes);

/// Returns a lower bound for all degrees from the busiest lane of any stage: its seconds in every pass, from its first
/// task to its last one, plus a forward through a chunk of each earlier stage before the first pass and a backward
/// after the last. It is much faster to compute than model_bound, and excludes the step.
double busiest_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundShapes& shapes);

/// Returns a lower bound on the seconds of the iteration for these degrees of forward and backward (equal degrees, if
/// the schedule requires it). It is tighter than model_bound, because it replays single passes.
double replayed_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                      EnumArray<Phase, std::span<const int>, 2> degrees, BoundShapes& shapes);

}  // namespace moe
