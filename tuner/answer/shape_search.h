#pragma once
// Which parallel shape trains a layer or model fastest on a cluster, at a fixed global batch: groups, stages,
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

/// A shape that was planned, under one schedule.
struct RankedShape {
  ModelShape model;
  RankedSchedule best;
  bool pareto = false;  // no plan is as fast and takes less memory
  double total_s() const { return best.total_s(); }
};

/// What one framework runs best.
struct FrameworkPlans {
  const commands::Framework* framework = nullptr;
  std::vector<RankedShape> rows = {};   // the preferred one first; of a search no other
  std::optional<Refusal> refusal = {};  // why there are none
  /// Of a search: the share by which another plan may be faster, at most; infinite: time ended before all were counted.
  double gap = 0;
};

struct FoundShapes {
  int64_t global_batch = 0;              // samples
  std::vector<std::string> pinned = {};  // what was not searched: flags, or "groups (--shape auto searches them)"
  /// The preferred plan, then others by time: of each planned shape the fastest, and all that are on the front.
  std::vector<RankedShape> ranked;
  std::optional<RankedShape> fastest = {};         // if the preferred plan is not: by kEquallyFast at most
  int shapes = 0;                                  // that divide
  int too_large = 0;                               // for a rank's memory, under every schedule
  int refused = 0;                                 // by every schedule, or for want of a price
  int unpriced = 0;                                // of these, the ones that want a price under some schedule
  std::vector<FrameworkPlans> of_frameworks = {};  // that were asked for, but those that run all
  /// Why shapes were refused, and for how many shapes some schedule was refused for that reason, the most first.
  std::vector<std::pair<Refusal, int>> refusals = {};
  int ruled_out = 0;      // by their bound: slower than one that takes as little memory
  int not_reached = 0;    // in the time
  double at_least_s = 0;  // no plan takes less; the fastest one's time, if all were compared
  /// Counts shapes of several stages that were planned by schedules of iterations too: the fastest under the others.
  /// None: the search has no such shapes or schedules. `at_least_s` does not cover the rest.
  std::optional<int> staged_iterations = {};
  std::chrono::steady_clock::time_point due = {};  // when the answer of which it is a part is to be ready
  double gap() const { return ranked.front().total_s() / at_least_s - 1; }
};

struct ShapeRequest {
  const commands::ChosenModel& chosen;  // layers, ranks; its groups, batch and micro-batches are those to choose
  int64_t global_batch = 1;             // samples of all replicas and micro-batches
  const Profile& profile;
  std::vector<const Schedule*> schedules;
  DegreeChoice degrees = {};
  commands::LayerFlags fixed = {};  // groups that were asked for, and placement
  bool fixed_batch = false;         // of a micro-batch
  bool fixed_micro_batches = false, fixed_order = false, fixed_virtual_stages = false;  // as are these
  PricingOptions pricing = {true, "--nearest"};
  const commands::Framework* framework = nullptr;        // whose shapes alone are searched; null: any
  std::span<const commands::Framework> frameworks = {};  // whose own best plans are found too
  std::string_view flag = "--shape";                     // that asked for the search, for errors
  /// Seconds after which the answer is to be ready, the ranking of the best shape's schedules too: the search stops
  /// before, and the best so far is the answer.
  double seconds = 60;
};

/// Goes through all shapes by their lower bounds, the least first: groups, how the batch is cut, and what a rank keeps
/// (ZeRO 0 or 1, what it computes again), as far as no flag says it. One whose bound is above the time of a plan that
/// takes no more memory is not planned: so what is left holds the preferred plan, the fastest, and the fastest within
/// any memory. Groups of a size that the profile has no row for are priced by the nearest size's row. Throws
/// Unsupported where no shape can be planned.
FoundShapes find_shapes(const ShapeRequest& request);

/// Returns "DP 4 MP 1 EP 4 ESP 1 PP 2, 4 micro-batches of 2 (1f1b)".
std::string describe_shape(const ModelShape& model);

/// Returns what the search found: counts, reasons, and a table of the fastest shapes and of those that need less
/// memory.
std::string text_of(const FoundShapes& found, int top);
/// Returns the same in few lines, or, where `tight`, in five: the shape, what was left out, the next one, the front.
std::string brief_text_of(const FoundShapes& found, bool tight);
Json json_of(const FoundShapes& found);
/// Returns groups, placement, what ranks keep, and how samples are cut into micro-batches.
Json shape_json(const ModelShape& model);

// The shapes that a search for the parallel shape goes through.

/// Groups, how the global batch is cut, and what a rank keeps.
struct ShapeCandidate {
  ModelShape model;
  double memory_bytes = 0;  // of a rank, at least
};

struct ShapeCandidates {
  std::vector<ShapeCandidate> fitting;
  std::optional<std::string> not_run;                            // why the framework does not run a shape
  int too_large = 0;                                             // for a rank's memory
  std::vector<ModelShape> others;                                // those, and what another trainer alone tells apart
  bool counted_all = true;                                       // in time
  double least_bytes = std::numeric_limits<double>::infinity();  // that a shape needs, also one that is too large
};

/// Returns every shape that divides layers, ranks and samples; what a flag says is the same in all of them.
ShapeCandidates shape_candidates(const ShapeRequest& request);

/// Returns the model with its groups completed and the ends of its stages; nothing if its layers do not divide.
std::optional<ModelShape> divided(ModelShape model, const commands::ChosenModel& chosen);

// What no plan of a shape under a schedule can beat.

/// Returns the seconds that the busiest lane of the first or the last stage works at least, whatever the schedule
/// chooses of what `choice` lets fit: variants, how many experts a device holds. Before the last stage's first pass
/// lies a forward through a chunk of each other, behind its last one a backward. It is known much sooner than
/// plan_bound_s. `shapes` keeps what bounds of many models share.
double lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns the seconds that no plan of `chosen` beats, whatever the schedule chooses likewise.
double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                    const DegreeChoice& choice, BoundShapes& shapes);

/// Returns the same from replays of single passes, closer and later; 0 where it has nothing to say.
double replayed_bound_s(const Schedule& schedule, const LayerPricer& pricer, const commands::ChosenModel& chosen,
                        const DegreeChoice& choice, BoundShapes& shapes);

}  // namespace moe::tuner
