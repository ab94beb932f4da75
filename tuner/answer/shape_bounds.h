#pragma once
// What no plan of a shape under a schedule can beat, and what is in no plan.
#include <optional>

#include "moe/cost/bounds.h"
#include "tuner/answer/ranking.h"

namespace moe::tuner {

/// Returns the seconds that the busiest lane of the first or the last stage works at least, whatever the schedule
/// chooses of what `choice` lets fit: variants, how many experts a device holds. Before the last stage's first pass
/// lies a forward through a chunk of each other, behind its last one a backward. It is known much sooner than
/// plan_bound_s. `shapes` keeps what bounds of many models share.
double lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns the seconds that no plan of `chosen` beats, whatever the schedule chooses likewise.
double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const verbs::ChosenModel& chosen,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns the seconds of the output projection for one micro-batch, with what MP ranks exchange for it in that flow;
/// 0: no vocabulary is known.
double head_seconds(const LayerPricer& pricer, const ModelShape& model, int64_t vocabulary, Flow flow);
/// Returns what the projection adds to a step. A pipeline passes all stages once, and its slowest stage once more for
/// every other micro-batch. `pass_s`: the time without the head; empty: returns what it is at least.
double all_heads_seconds(const ModelShape& model, double head_s, std::optional<double> pass_s);

}  // namespace moe::tuner
