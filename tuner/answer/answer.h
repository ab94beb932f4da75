#pragma once
// The answer to "which schedule and degrees for my layer or model on this cluster", as text and as JSON.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/printed.h"
#include "moe/base/json.h"
#include "moe/prices/fit.h"
#include "moe/record/record.h"
#include "tuner/answer/ranking.h"
#include "tuner/answer/shape_search.h"
#include "tuner/fit.h"
#include "tuner/tune.h"

namespace moe::tuner {

/// The schedule that the user runs now, as --current gives it: NAME, NAME:R, NAME:R_F:R_B.
struct CurrentSchedule {
  const Schedule* schedule = nullptr;
  int degree_forward = 0, degree_backward = 0;  // 0: tuned
};
/// Reads the flag --current. Throws BadInput naming it.
CurrentSchedule current_from(const std::string& text);

/// The user's own layout, as the flags and --current describe it.
struct UserLayout {
  ModelShape model;
  const Schedule* schedule = nullptr;
  DegreeChoice degrees = {};
  std::optional<commands::LayoutFile> file =
      {};  // the file that describes the layout; none: the command line describes it
  std::optional<MeasuredSteps> measured = {};  // times of training steps with this layout; none: unknown
};

/// A layout with its predicted time. A layout that exceeds a rank's memory is timed as if it fit.
struct TimedLayout {
  RankedShape plan;
  std::optional<Refusal> memory_refusal = {};  // why the layout does not fit; none: it fits
};

/// One step of a Walk: a change of the layout, and the layout after it.
struct LayoutStep {
  std::vector<std::string> flags = {};     // the flags of tune that change: "--mp 1"
  std::vector<std::string> settings = {};  // the same changes as settings of the framework, if it has such settings
  TimedLayout layout = {};                 // after the change
  bool is_remainder = false;               // several remaining changes, taken together
};

/// The user's layout and the changes that turn it into the recommended plan. There are no steps if the layout cannot be
/// planned, or if it takes at most kEquallyFast longer than the plan.
struct LayoutWalk {
  std::vector<std::string> flags = {};  // the flags that describe the user's layout
  TimedLayout own = {};
  std::vector<LayoutStep> steps = {};
  bool in_time = true;  // false: the search's time ended before all changes were compared
};

/// A real run that checks the ranking.
struct Trial {
  CaseRecord record;
  bool current = false;  // a run of the user's current schedule
};

struct Answer {
  std::string cluster = {};  // name of the cluster
  std::string place = {};    // cluster that the plan is for: its name, and the kind of its ranks
  const commands::ChosenModel* chosen = nullptr;
  std::string name = {};                   // name of the layer or model in records
  std::vector<std::string> defaults = {};  // flags of values that defaults decided (Subject::defaults)
  const FoundShapes* shapes = nullptr;     // result of the search for a parallel shape; null: the shape was given
  const Profile* profile = nullptr;
  const FittedProfile* fitted = nullptr;  // the fit of new measurements; null: the profile was used as it is
  bool emulated = false;
  double prices_slowdown =
      1;  // slowdown of cores while prices were measured, over their best since then (CoreTimes::over)
  const commands::Framework* framework = nullptr;  // the framework that the answer is for; null: all of them
  std::vector<RankedSchedule> ranking = {};
  const UserLayout* own = nullptr;                      // the user's layout; null: unknown
  std::optional<RankedSchedule> current = {};           // row of the user's layout; none: it has another shape
  std::optional<LayoutWalk> walk = {};                  // changes from the user's layout to the recommended plan
  std::vector<FrameworkPlans> plans_by_framework = {};  // plans of the frameworks that the answer is for
  std::vector<Neighbour> neighbours = {};               // times at degrees next to those of the recommended schedule
  std::optional<commands::PublishedErrors> published =
      {};  // errors of predicted training steps on this GPU; none: unknown
  std::vector<Trial> trials = {};
  int trial_layers = 0;                              // number of the model's layers that the trials ran
  std::optional<std::string> no_trials_reason = {};  // reason why no trial ran; none: trials ran
  /// Number of rows of the ranking to show besides baselines and trials, with all notes; 0: a short answer of at most
  /// 25 lines.
  int top = 0;
  std::string records_path = {}, profile_path = {}, trace_path = {};
  std::string next = {};  // command lines to continue with, one per line
};

/// Returns the trial of a schedule or, if `current`, the trial of the user's current schedule; null if it was not run.
const CaseRecord* trial_of(const Answer& answer, std::string_view schedule, bool current = false);
/// Returns the usable row of a schedule in the ranking; null if there is none.
const RankedSchedule* row_of(const Answer& answer, std::string_view schedule);

/// Returns whether the trials ran every layer that the predictions cover.
bool ran_all_layers(const Answer& answer);
/// Returns whether a trial lacks a part that the prediction has: a model's embedding and output projection, or the sums
/// of experts' gradients.
bool ran_partially(const RankedSchedule& row, const CaseRecord& trial);
/// Returns the seconds of the whole layer or model by a trial: its time plus the predicted time of the parts that a run
/// lacks; if it ran fewer layers, the prediction times the ratio of the trial's time to its own prediction.
double expected_s(const Answer& answer, const RankedSchedule& row, const CaseRecord& trial);

/// Returns whether the trial of `row` was faster than that of `than` by more than their passes vary.
bool clearly_faster(const Answer& answer, const RankedSchedule& row, const RankedSchedule& than);

/// Returns the first three names and the number of the others.
std::string some_names(const std::vector<std::string_view>& names);
/// Returns the reasons why rows cannot be used, each with the schedules that have it: "SCHEDULE, ..: REASON".
std::vector<std::string> refusals_of(const std::vector<RankedSchedule>& rows);

/// Returns the row to recommend: the first of the ranking, unless another row with a different predicted time ran
/// clearly faster: by more than 1 %, with medians that likely differ (median_interval_s). Throws Unsupported if no
/// schedule is usable.
const RankedSchedule& recommended(const Answer& answer);

/// Returns the largest error of a sound trial's prediction, as a share; 0 if no trial is sound.
double worst_error(const Answer& answer);
/// The largest acceptable error of a trial's prediction, as a share. A larger one means that the profile was measured
/// while the machine was in another state.
inline constexpr double kLargeError = 0.25;
/// Returns one line that gives the largest error of a trial and its likely cause; empty if no trial exceeds
/// kLargeError.
std::string large_error_text(const Answer& answer);

/// Returns whether weak rows price the recommendation, its own run did not go well, or a trial's error exceeds
/// kLargeError.
bool is_doubtful(const Answer& answer);

/// Returns whether trials confirm the recommendation, with its predicted and its measured gain over tutel:
/// "within the error: predicted 1.020x over tutel, ran slower (0.991x)".
std::string verdict_of(const Answer& answer);

std::string text_of(const Answer& answer);
/// Returns the parts of the answer's long text, with all notes, in the form that records store.
std::vector<AnswerPart> parts_of(const Answer& answer);
Json json_of(const Answer& answer);
/// Returns the numbers of a ranked schedule, or the reason why it cannot be used.
Json json_of(const commands::ChosenModel& chosen, const Profile& profile, const RankedSchedule& row);

}  // namespace moe::tuner
