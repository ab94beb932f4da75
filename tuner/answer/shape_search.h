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
  std::vector<RankedShape> rows = {};   // preferred row first; the only one after a search for shapes
  std::optional<Refusal> refusal = {};  // reason why there are no rows
  /// After a search, the largest share by which another plan may be faster; infinite if the time ended before all
  /// shapes were counted.
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
  std::vector<FrameworkPlans> plans_by_framework = {};  // requested frameworks, except those that run everything
  /// Why shapes were refused: each reason with the number of shapes that have it, the most frequent first.
  std::vector<std::pair<Refusal, int>> refusals = {};
  int ruled_out = 0;      // shapes ruled out by their bound: slower than a plan with no more memory
  int not_reached = 0;    // shapes that the search did not reach before its time ended
  double at_least_s = 0;  // lower bound on the seconds of all plans; the fastest plan's time if all were compared
  /// Number of shapes with several stages that were also planned by schedules that order whole iterations; these are
  /// the shapes that are fastest under other schedules. None if the search has no such shapes or no such schedules.
  /// `at_least_s` does not cover plans of the remaining shapes by these schedules.
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
  bool fixed_batch = false;         // a flag fixes the samples of a micro-batch
  bool fixed_micro_batches = false, fixed_order = false,
       fixed_virtual_stages = false;  // flags fix these values
  PricingOptions pricing = {true, "--nearest"};
  const commands::Framework* framework = nullptr;        // the framework whose shapes are searched; null: any
  std::span<const commands::Framework> frameworks = {};  // frameworks whose own best plans are searched too
  std::string_view flag = "--shape";                     // the flag that requested the search, for errors
  /// Seconds for the whole answer, which includes ranking the best shape's schedules. The search itself stops earlier
  /// and returns the best plan so far.
  double seconds = 60;
};

/// Searches the shapes by best-first branch and bound. A shape has groups, micro-batches and states that ranks keep
/// (ZeRO 0 or 1, recomputation), unless flags fix them. Shapes are taken by ascending lower bound on their time. A
/// shape is not planned if its bound exceeds the time of a plan that takes no more memory, so the result includes the
/// preferred plan, the fastest plan, and the fastest plan within any limit of memory. Groups whose size has no row in
/// the profile are priced by the row of the nearest size. Throws Unsupported if no shape can be planned.
FoundShapes find_shapes(const ShapeRequest& request);

/// Returns "DP 4 MP 1 EP 4 ESP 1 PP 2, 4 micro-batches of 2 (1f1b)".
std::string describe_shape(const ModelShape& model);

/// Returns the result of the search: counts, reasons, and a table of the fastest shapes and of those with less
/// memory.
std::string text_of(const FoundShapes& found, int top);
/// Returns the same in few lines (five if `tight`): the shape, counts of omitted shapes, the
/// next shape, and the Pareto front.
std::string brief_text_of(const FoundShapes& found, bool tight);
Json json_of(const FoundShapes& found);
/// Returns groups, placement, states that ranks keep, and micro-batches.
Json shape_json(const ModelShape& model);

// The candidates of the search for the parallel shape.

/// A model with groups, micro-batches and states that ranks keep.
struct ShapeCandidate {
  ModelShape model;
  double memory_bytes = 0;  // lower bound of a rank's memory
};

struct ShapeCandidates {
  std::vector<ShapeCandidate> fitting;
  std::optional<std::string> not_run;  // reason why the framework does not run some shape; none: it runs all
  int too_large = 0;                   // number of shapes that exceed the memory of a rank
  /// Shapes omitted here that may be candidates under another trainer's rules of memory: those that are too large, and
  /// those whose recomputation has no effect on this trainer's attention.
  std::vector<ModelShape> others;
  bool counted_all = true;                                     // false: the time ran out before all shapes were counted
  double min_bytes = std::numeric_limits<double>::infinity();  // least memory of a shape, including those too large
};

/// Returns all shapes that the flags allow and whose sizes divide the numbers of layers, ranks and samples.
ShapeCandidates shape_candidates(const ShapeRequest& request);

/// Returns the model with all group sizes and with its embedding and output projection on the end stages; none if the
/// groups or stages do not suit it.
std::optional<ModelShape> divided(ModelShape model, const commands::ChosenModel& chosen);

// Lower bounds on the plans of a shape under a schedule.

/// Returns a lower bound on the seconds of a step: the work of the busiest lane of the first or the last stage, over
/// the schedule's options (variants, experts per device) that fit with `choice`. Before the last stage's first
/// pass, each other stage runs the forward of a chunk, and after its last pass a backward. It is computed much faster
/// than plan_bound_s. `shapes` keeps data that bounds of many models share.
double lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns a lower bound on the seconds of all plans of `chosen`, over the same options as lane_bound_s.
double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns a tighter lower bound from replays of single passes, which takes longer to compute; 0 if it has none.
double replayed_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                        const DegreeChoice& choice, BoundShapes& shapes);

}  // namespace moe::tuner
