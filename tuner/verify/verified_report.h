#pragma once
// The results of a `tune` of a grid, as text and as JSON.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "commands/shared/sweep.h"
#include "moe/base/json.h"
#include "moe/prices/fit.h"

namespace moe::tuner {

// Figures on the agreement of measured and predicted times of a grid's layers, and on the comparison of schedules. All
// figures only use sound runs (is_sound_run).

inline constexpr double kClearDifference = 0.02;  // relative; closer predictions do not count in the ranking

/// Returns the records of all runs, including those of tried degrees.
std::vector<const CaseRecord*> runs_of(const commands::LayerOutcome& outcome);
std::vector<const CaseRecord*> runs_of(const std::vector<commands::LayerOutcome>& outcomes);

/// The results of one schedule over the layers on which both it and tutel have a sound run.
struct MeasuredSchedule {
  int layers = 0;
  double measured = 0, predicted = 0;  // mean ratio of tutel's forward + backward to this schedule's; 0: no layers
  int differing_degrees = 0;           // number of layers that ran with r_f != r_b
};
MeasuredSchedule measured_schedule(const std::vector<commands::LayerOutcome>& outcomes, std::string_view schedule);

/// Numbers of layers by the best of the tried degrees. Forward and backward are timed separately, so a layer's best
/// pair combines the best of each.
struct BestDegrees {
  int layers = 0;              // layers on which every tried degree has a sound run
  int differing_degrees = 0;   // layers with best r_f != best r_b
  int apart_by_1_percent = 0;  // of these, layers that take over 1 % longer at the best r_f = r_b
};
enum class Times : uint8_t { measured, predicted };
BestDegrees best_degrees(const std::vector<commands::LayerOutcome>& outcomes, Times times);

/// Numbers of pairs of schedules of one layer, over all layers, whose predictions differ by more than kClearDifference.
struct Ranking {
  int pairs = 0, agree = 0;
  double tau() const { return pairs > 0 ? (2.0 * agree - pairs) / pairs : 0; }  // Kendall's tau
};
Ranking ranking(const std::vector<commands::LayerOutcome>& outcomes);

struct Agreement {
  double median_error = 0, worst_error = 0;        // |measured / predicted - 1|
  double median_overruns = 0, worst_overruns = 0;  // overruns as a share of a run's tasks
  int on_slow_cores = 0;                           // sound runs on slow cores (kSlowCores)
  double worst_slowdown = 1;                       // largest slowdown of cores in a sound run
  double fast_median = 0, fast_worst = 0;          // errors of sound runs on other cores
  int sound = 0;                                   // runs that these figures cover
  int runs = 0;                                    // intended runs, without unsupported ones
};

/// The excess of measured over predicted times, as a share of all predicted times, by kind of task, the largest first.
/// `rest` is the part that no task causes: waiting, and overlap of lanes.
struct ErrorParts {
  double total = 0, rest = 0;
  std::vector<std::pair<std::string, double>> kinds;
};
ErrorParts error_parts(const std::vector<commands::LayerOutcome>& outcomes);

/// The regret of choosing by predictions, over the layers with at least two sound runs: the time of the run predicted
/// fastest over that of the run measured fastest, less 1. The measured fastest is picked on every other pass, and both
/// are scored on the passes between.
struct ChoiceLoss {
  int layers = 0;
  double mean = 0, worst = 0;
};
ChoiceLoss choice_loss(const std::vector<commands::LayerOutcome>& outcomes);

/// The wall time of the layers' runs by purpose, in seconds, from their records.
struct RunTime {
  double proving_s = 0, unpaced_s = 0, timed_s = 0;
  int64_t repeats = 0;                  // disturbed passes of schedules that were repeated
  const CaseRecord* longest = nullptr;  // record of the layer whose timed passes took longest
};
RunTime run_time(const std::vector<commands::LayerOutcome>& outcomes);

/// All of these figures, for text and JSON.
struct RunFigures {
  int layers = 0;  // number of layers to run
  Agreement agreement = {};
  Ranking ranking = {};
  ErrorParts errors = {};
  ChoiceLoss choice = {};
  RunTime time = {};
  BestDegrees best_measured = {}, best_predicted = {};
  std::map<std::string, int> left_out_reasons = {};  // "STATUS: REASON" -> runs excluded from the figures
  /// Returns whether fewer than half of the runs are sound, or none is.
  bool is_doubtful() const;
};
RunFigures figures_of(const std::vector<commands::LayerOutcome>& outcomes);

struct VerifiedResults {
  Profile cluster;
  bool emulated = true;
  double prices_slowdown = 1;  // core slowdown while prices were measured, over the best since (CoreTimes::over)
  std::string place = {};      // place of the Target
  bool whole_grid = false;     // true: the run was to cover every layer
  Grid grid;
  std::vector<const Schedule*> schedules, verified;  // schedules that were planned, and those that also ran
  DegreeChoice degrees;
  FittedProfile fitted;
  std::vector<commands::SweepRow> rows;
  std::vector<commands::LayerOutcome> outcomes;
  std::string records_path, profile_path, trace_path;
  double measuring_s = 0, planning_s = 0;  // wall time of measuring the target, and of planning all layers
};

/// Return the results as text and as JSON. `figures`: figures_of the results' outcomes.
std::string text_of(const VerifiedResults& results, const RunFigures& figures);
Json json_of(const VerifiedResults& results, const RunFigures& figures);
/// Returns the reason why the figures are doubtful.
std::string doubt_text(const RunFigures& figures);

// The tables of `tune --measure all`: FSMoE's Table 5 and its count of layers with r_f != r_b, measured.

/// Returns the table of mean speedups for the records file (AnswerPart).
AnswerPart part_of(const VerifiedResults& results, const RunFigures& figures);

/// Returns the tables as text. `figures`: figures_of the results' outcomes.
std::string grid_text(const VerifiedResults& results, const RunFigures& figures);

}  // namespace moe::tuner
