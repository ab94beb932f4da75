#pragma once
// A lower bound on a whole model's iteration: all micro-batches, layers and stages under one schedule.
#include <span>

#include "moe/base/enum_array.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/bounds.h"

namespace moe {

/// Returns what a planned step adds at least to a stage's passes, where nothing slows anything: its sums share the
/// gradients' network, an optimizer's task waits for the last of them, and ZeRO 1's gathers are behind both. The first
/// sum runs beside the collective that ends a backward.
double step_least_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int stage = 0);

/// Returns the seconds that an iteration takes at least at these degrees of both phases, by default whatever they are,
/// and wherever the gradients are sent; `pricer` prices one layer of the model. Micro-batches may overlap: a layer's
/// tasks wait for the layer before of the same micro-batch, and on each lane for the pass before.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   BoundedDegrees degrees = {});
/// Returns the same; `shapes` keeps what bounds of many models share.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundedDegrees degrees,
                   BoundShapes& shapes);

/// Returns the seconds of the busiest lane of any stage at least, whatever the degrees, from its first task to its last
/// one in every pass. Before a stage's first pass lies a forward through a chunk of each stage before, behind its last
/// one a backward. It takes much less time than model_bound, and counts no step.
double busiest_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundShapes& shapes);

/// Returns the seconds that the iteration takes at least at any of these degrees, forward and backward, of which one
/// is the same for both where the schedule says so: closer than model_bound, from replays of single passes.
double replayed_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                      EnumArray<Phase, std::span<const int>, 2> degrees, BoundShapes& shapes);

}  // namespace moe
