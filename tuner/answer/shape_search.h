#pragma once
// The search for the fastest parallel shape of a layer or model on a cluster at a fixed global batch: groups, stages,
// micro-batches and their order, placement, schedule and degrees together.
#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands/shared/frameworks.h"
#include "moe/base/json.h"
#include "moe/simulator/bounds.h"
#include "tuner/answer/ranking.h"

namespace moe::tuner {

/// A shape that was planned under one schedule.
struct RankedShape {
  ModelShape model;
  RankedSchedule best;
  bool pareto = false;  // no other plan is as fast with less memory
  double total_s() const { return best.total_s(); }
};

/// The best plans of one framework.
struct FrameworkPlans {
  const commands::Framework* framework = nullptr;
  std::vector<RankedShape> rows = {};   // the preferred row first; a search for shapes gives only that one
  std::optional<Refusal> refusal = {};  // reason why there are no rows
  /// Of a search: the share by which another plan may be faster, at most; infinite: time ended before all were counted.
  double gap = 0;
};

struct FoundShapes {
  int64_t global_batch = 0;              // samples
  std::vector<std::string> pinned = {};  // flags that restrict the search, or "groups (--shape auto searches them)"
  /// The preferred plan, then the others by time: the fastest of each planned shape, and all plans on the front.
  std::vector<RankedShape> ranked;
  std::optional<RankedShape> fastest =
      {};             // the fastest plan, if it is not the preferred one; at most kEquallyFast faster
  int shapes = 0;     // shapes that divide layers, ranks and samples
  int too_large = 0;  // shapes that exceed a rank's memory under every schedule
  int refused = 0;    // shapes that every schedule refuses, or that lack a price
  int unpriced = 0;   // refused shapes that lack a price under some schedule
  std::vector<FrameworkPlans> of_frameworks = {};  // requested frameworks, except those that run everything
  /// Why shapes were refused: each reason with the number of shapes that have it, the most frequent first.
  std::vector<std::pair<Refusal, int>> refusals = {};
  int ruled_out = 0;      // shapes ruled out by their bound: slower than a plan with no more memory
  int not_reached = 0;    // shapes that were not reached in the time
  double at_least_s = 0;  // lower bound on the seconds of all plans; the fastest plan's time if all were compared
  /// Number of shapes of several stages that were also planned by schedules of iterations: the fastest under the
  /// others. None if the search has no such shapes or schedules. `at_least_s` does not cover the remaining ones.
  std::optional<int> staged_iterations = {};
  std::chrono::steady_clock::time_point deadline = {};  // deadline of the answer that the search is a part of
  double gap() const { return ranked.front().total_s() / at_least_s - 1; }
};

struct ShapeRequest {
  const commands::ChosenModel& chosen;  // layers and ranks; its groups, batch and micro-batches are searched
  int64_t global_batch = 1;             // samples over all replicas and micro-batches
  const Profile& profile;
  std::vector<const Schedule*> schedules;
  DegreeChoice degrees = {};
  commands::LayerFlags fixed = {};  // requested groups and placement
  bool fixed_batch = false;         // the batch of a micro-batch is fixed
  bool fixed_micro_batches = false, fixed_order = false,
       fixed_virtual_stages = false;  // these values are fixed by flags
  PricingOptions pricing = {true, "--nearest"};
  const commands::Framework* framework = nullptr;        // the framework whose shapes are searched; null: any
  std::span<const commands::Framework> frameworks = {};  // frameworks whose own best plans are searched too
  std::string_view flag = "--shape";                     // the flag that requested the search, for errors
  /// Seconds until the answer, including the ranking of the best shape's schedules. The search stops before that and
  /// returns the best plan so far.
  double seconds = 60;
};

/// Goes through all shapes by their lower bounds, the least first: groups, how the batch is cut, and what a rank keeps
/// (ZeRO 0 or 1, recomputation), unless flags fix them. A shape is not planned if its bound exceeds the time of a plan
/// that takes no more memory, so the result includes the preferred plan, the fastest, and the fastest within any
/// memory. Groups whose size has no row in the profile are priced by the row of the nearest size. Throws Unsupported if
/// no shape can be planned.
FoundShapes find_shapes(const ShapeRequest& request);

/// Returns "DP 4 MP 1 EP 4 ESP 1 PP 2, 4 micro-batches of 2 (1f1b)".
std::string describe_shape(const ModelShape& model);

/// Returns the result of the search: counts, reasons, and a table of the fastest shapes and of those with less
/// memory.
std::string text_of(const FoundShapes& found, int top);
/// Returns the same in few lines (five if `tight`): the shape, what was left out, the next shape, the front.
std::string brief_text_of(const FoundShapes& found, bool tight);
Json json_of(const FoundShapes& found);
/// Returns groups, placement, what ranks keep, and how samples are cut into micro-batches.
Json shape_json(const ModelShape& model);

// The candidates of the search for the parallel shape.

/// Groups, how the global batch is cut, and what a rank keeps.
struct ShapeCandidate {
  ModelShape model;
  double memory_bytes = 0;  // lower bound of a rank's memory
};

struct ShapeCandidates {
  std::vector<ShapeCandidate> fitting;
  std::optional<std::string> not_run;  // why the framework does not run one of the shapes
  int too_large = 0;                   // number of shapes that exceed the memory of a rank
  /// Shapes that only another trainer may need: those that are too large, and those whose recomputation makes no
  /// difference with this trainer's attention.
  std::vector<ModelShape> others;
  bool counted_all = true;                                     // false: the time ran out before all shapes were counted
  double min_bytes = std::numeric_limits<double>::infinity();  // least memory of a shape, including those too large
};

/// Returns all shapes that divide layers, ranks and samples and agree with the flags.
ShapeCandidates shape_candidates(const ShapeRequest& request);

/// Returns the model with complete groups and the ends of its stages; none if its layers do not divide.
std::optional<ModelShape> divided(ModelShape model, const commands::ChosenModel& chosen);

// Lower bounds on the plans of a shape under a schedule.

/// Returns a lower bound on the seconds of a step: the work of the busiest lane of the first or the last stage, over
/// all choices of the schedule that `choice` lets fit (variants, experts per device). Before the last stage's first
/// pass, each other stage runs the forward of a chunk, and after its last pass a backward. It is computed much faster
/// than plan_bound_s. `shapes` keeps data that bounds of many models share.
double lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns a lower bound on the seconds of all plans of `chosen`, over the same choices of the schedule.
double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns a tighter lower bound from replays of single passes, which takes longer; 0 if none is known.
double replayed_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                        const DegreeChoice& choice, BoundShapes& shapes);

}  // namespace moe::tuner
