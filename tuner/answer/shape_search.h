#pragma once
// Which parallel shape trains a layer or model fastest on a cluster, at a fixed global batch: groups, stages,
// micro-batches and their order, placement, schedule and degrees together.
#include <vector>

#include "tuner/answer/ranking.h"
#include "verbs/results_json.h"

namespace moe::tuner {

/// A shape that was planned, under its best schedule.
struct RankedShape {
  ModelShape model;
  RankedSchedule best;
  /// Seconds of summing the gradients of replicated experts over EDP, which runs after the pass and is in no plan but
  /// those of schedules that pack experts.
  double expert_sums_s = 0;
  bool pareto = false;  // no planned shape is as fast and takes less memory
  double total_s() const { return best.total_s() + expert_sums_s; }
};

struct FoundShapes {
  std::vector<RankedShape> ranked;  // the fastest first; those that a bound ruled out are missing
  int shapes = 0;                   // that divide
  int too_large = 0;                // for a rank's memory
  int unpriced = 0;                 // the profile has no row, of any group size, for what they send
  int ruled_out = 0;                // their bound is above the best time
  double at_least_s = 0;            // no shape that was not ruled out takes less; the best time, where it is exact
  double gap() const { return ranked.front().total_s() / at_least_s - 1; }
};

struct ShapeRequest {
  const ChosenModel& chosen;  // its batch x DP x micro-batches is the global batch
  const Profile& profile;
  std::vector<const Schedule*> schedules;
  DegreeChoice degrees = {};
  LayerFlags fixed = {};        // groups that were asked for, and placement
  bool fixed_pipeline = false;  // as are micro-batches and their order
  double seconds = 60;          // after which the best so far is the answer
};

/// Goes through all shapes by their lower bounds, the least first, until the next bound is above the best time: then
/// none is faster. Groups of a size that the profile has no row for are priced by the nearest size's row. Throws
/// Unsupported where no shape can be planned.
FoundShapes find_shapes(const ShapeRequest& request);

/// "DP 4 MP 1 EP 4 ESP 1 PP 2, 4 micro-batches of 2 (1f1b)".
std::string describe_shape(const ModelShape& model);

std::string text_of(const FoundShapes& found, int top);
Json json_of(const FoundShapes& found);

}  // namespace moe::tuner
