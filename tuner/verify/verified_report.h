#pragma once
// What a whole `tune` found, as text and as JSON.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "commands/shared/sweep.h"
#include "moe/base/json.h"
#include "moe/prices/fit.h"

namespace moe::tuner {

// How the measured times of a grid's layers compare with the predicted ones, and the schedules with each other. Every
// figure is of sound runs alone (ran_well).

inline constexpr double kClearDifference = 0.02;  // predictions closer than this don't fix a ranking

/// Returns the records of all runs, tried degrees too.
std::vector<const CaseRecord*> runs_of(const commands::LayerOutcome& outcome);
std::vector<const CaseRecord*> runs_of(const std::vector<commands::LayerOutcome>& outcomes);

/// Sums up one schedule over the layers on which both it and tutel ran well.
struct MeasuredSchedule {
  int layers = 0;
  double measured = 0, predicted = 0;  // mean over them of tutel's forward + backward over its own; 0: no layer
  int apart = 0;                       // of them ran with r_f != r_b
};
MeasuredSchedule measured_schedule(const std::vector<commands::LayerOutcome>& outcomes, std::string_view schedule);

/// Counts layers by the degrees that are best of those tried: forward and backward are timed apart, so a layer's best
/// pair is the best of each.
struct BestDegrees {
  int layers = 0;              // on which every tried degree ran well
  int apart = 0;               // best r_f != best r_b
  int apart_by_1_percent = 0;  // and the best equal degrees take more than 1 % longer, forward + backward
};
enum class Times : uint8_t { measured, predicted };
BestDegrees best_degrees(const std::vector<commands::LayerOutcome>& outcomes, Times times);

/// Counts pairs of schedules of one layer, over all layers, whose predictions differ by more than kClearDifference.
struct Ranking {
  int pairs = 0, agree = 0;
  double tau() const { return pairs > 0 ? (2.0 * agree - pairs) / pairs : 0; }  // Kendall's
};
Ranking ranking(const std::vector<commands::LayerOutcome>& outcomes);

struct Agreement {
  double median_error = 0, worst_error = 0;        // |measured / predicted - 1|
  double median_overruns = 0, worst_overruns = 0;  // of a run: share of its tasks
  int on_slow_cores = 0;                           // sound runs on slow cores (kSlowCores)
  double worst_slowdown = 1;                       // of a sound run's cores
  double fast_median = 0, fast_worst = 0;          // the errors of sound runs on other cores
  int sound = 0;                                   // runs that these are of
  int runs = 0;                                    // all that were to run, without what is unsupported
};

/// By how much runs took longer than predicted, as a share of all predicted times, and which kinds of task carry
/// it, the largest first. The rest is what no task has: waiting, and what lanes hide from each other.
struct ErrorParts {
  double total = 0, rest = 0;
  std::vector<std::pair<std::string, double>> kinds;
};
ErrorParts error_parts(const std::vector<commands::LayerOutcome>& outcomes);

/// What it costs to trust the predictions: over the layers with at least two sound runs, the time of the one
/// predicted best over that of the one that ran best, less 1. The best is picked on every other pass, and both are
/// scored on those between.
struct ChoiceLoss {
  int layers = 0;
  double mean = 0, worst = 0;
};
ChoiceLoss choice_loss(const std::vector<commands::LayerOutcome>& outcomes);

/// Where the time of the layers' runs went, by their records.
struct RunTime {
  double proving_s = 0, unpaced_s = 0, timed_s = 0;
  int64_t repeats = 0;                  // of a schedule's passes that were disturbed
  const CaseRecord* longest = nullptr;  // of the layer whose timed passes took longest
};
RunTime run_time(const std::vector<commands::LayerOutcome>& outcomes);

/// All of these figures, as text and JSON print them.
struct RunFigures {
  int layers = 0;  // that were to run
  Agreement agreement = {};
  Ranking ranking = {};
  ErrorParts errors = {};
  ChoiceLoss choice = {};
  RunTime time = {};
  BestDegrees best_measured = {}, best_predicted = {};
  std::map<std::string, int> left_out = {};  // "STATUS: REASON" -> runs that no figure counts because of it
  /// Returns whether fewer than half of the runs are sound, or none.
  bool doubtful() const;
};
RunFigures figures_of(const std::vector<commands::LayerOutcome>& outcomes);

struct VerifiedResults {
  Profile cluster;
  bool emulated = true;
  double prices_slowdown = 1;  // of the cores on which they were measured, against the best since (CoreTimes::over)
  std::string place = {};      // Target's
  bool whole_grid = false;     // every layer was to be run
  Grid grid;
  std::vector<const Schedule*> schedules, verified;  // swept; run for real
  DegreeChoice degrees;
  FittedProfile fitted;
  std::vector<commands::SweepRow> rows;
  std::vector<commands::LayerOutcome> outcomes;
  std::string records_path, profile_path, trace_path;
  double measuring_s = 0, planning_s = 0;  // wall time of the first step, and of planning all layers
};

/// Return the results as text and as JSON; `figures` are of the results' outcomes.
std::string text_of(const VerifiedResults& results, const RunFigures& figures);
Json json_of(const VerifiedResults& results, const RunFigures& figures);
/// Returns why the figures are doubtful.
std::string doubt_text(const RunFigures& figures);

// What `tune --measure all` ends in: FSMoE's Table 5 and its count of layers with r_f != r_b, measured.

/// Returns the table of mean speedups as a part of an answer, as records keep it.
AnswerPart part_of(const VerifiedResults& results, const RunFigures& figures);

/// Returns the tables; `figures` are of the results' outcomes.
std::string grid_text(const VerifiedResults& results, const RunFigures& figures);

}  // namespace moe::tuner
