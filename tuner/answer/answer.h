#pragma once
// The answer to "which schedule and degrees for my layer or model on this cluster": as text, and as JSON.
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

/// A schedule that the user has now, as --current says: NAME, NAME:R, NAME:R_F:R_B.
struct CurrentSchedule {
  const Schedule* schedule = nullptr;
  int degree_forward = 0, degree_backward = 0;  // 0: tuned
};
/// Reads the flag --current. Throws BadInput naming it.
CurrentSchedule current_from(const std::string& text);

/// The user's own layout, as flags and --current say it.
struct OwnLayout {
  ModelShape model;
  const Schedule* schedule = nullptr;
  DegreeChoice degrees = {};
  std::optional<commands::LayoutFile> file = {};  // that says it; none: words do
  std::optional<MeasuredSteps> measured = {};     // with it
};

/// A layout with its time. One that a rank's memory does not hold is timed as if it did.
struct TimedLayout {
  RankedShape plan;
  std::optional<Refusal> misfit = {};  // none: it fits
};

/// A change on the way from the user's layout to the recommended plan.
struct LayoutStep {
  std::vector<std::string> flags = {};     // "--mp 1": those of tune that change
  std::vector<std::string> settings = {};  // the same in the framework, as far as it has settings for them
  TimedLayout layout = {};                 // that the change leads to
  bool is_rest = false;                    // several changes that are not taken one by one
};

/// The way from the user's layout to the recommended plan. There are no steps if the layout takes no longer, or as long
/// but for kEquallyFast, and if it cannot be planned.
struct Walk {
  std::vector<std::string> flags = {};  // that say the user's layout
  TimedLayout own = {};
  std::vector<LayoutStep> steps = {};
  bool in_time = true;  // all changes were compared
};

/// What was run for real to check the ranking.
struct Trial {
  CaseRecord record;
  bool current = false;  // of the schedule that the user has now
};

struct Answer {
  std::string cluster = {};  // its name
  std::string place = {};    // where it would run: the cluster's name, and what its ranks are
  const commands::ChosenModel* chosen = nullptr;
  std::string name = {};                   // of it, in records
  std::vector<std::string> defaults = {};  // as flags, of what no flag says (Subject::defaults)
  const FoundShapes* shapes = nullptr;     // that its parallel shape was chosen among; none: it was given
  const Profile* profile = nullptr;
  const FittedProfile* fitted = nullptr;  // none: the profile was taken as it stands
  bool emulated = false;
  double prices_slowdown = 1;  // of the cores on which they were measured, against the best since (CoreTimes::over)
  const commands::Framework* framework = nullptr;  // that the answer is for; null: for all of them
  std::vector<RankedSchedule> ranking = {};
  const OwnLayout* own = nullptr;                           // of the user; null: unknown
  std::optional<RankedSchedule> current = {};               // it, if it has the answer's shape
  std::optional<Walk> walk = {};                            // from it
  std::vector<FrameworkPlans> of_frameworks = {};           // of those that the answer is for
  std::vector<Neighbour> neighbours = {};                   // of the first in the ranking
  std::optional<commands::PublishedErrors> published = {};  // of training steps on such a GPU; none: none is known
  std::vector<Trial> trials = {};
  int trial_layers = 0;                       // of the model, that the trials ran
  std::optional<std::string> no_trials = {};  // why there are none
  /// How many rows of the ranking are shown, beside baselines and trials, with all that there is to say; 0: what
  /// fits into 25 lines.
  int top = 0;
  std::string records_path = {}, profile_path = {}, trace_path = {};
  std::string next = {};  // command lines that go on from here, one a line
};

/// Returns the trial of a schedule, or of what the user has now; none: it was not tried.
const CaseRecord* trial_of(const Answer& answer, std::string_view schedule, bool current = false);
/// Returns a row of the ranking that can be used; none: it has no such row.
const RankedSchedule* row_of(const Answer& answer, std::string_view schedule);

/// Returns whether the trials ran all that the predictions are of.
bool ran_whole(const Answer& answer);
/// Returns whether a run of all layers lacks some of what is predicted: a model's ends, sums of experts' gradients.
bool ran_in_part(const RankedSchedule& row, const CaseRecord& trial);
/// Returns what a trial says the whole layer or model takes: its time plus the predicted time of what a run lacks, or,
/// where it ran fewer layers, the prediction times the trial's own ratio.
double expected_s(const Answer& answer, const RankedSchedule& row, const CaseRecord& trial);

/// Returns whether a schedule ran faster than another by more than its passes differ among each other.
bool clearly_faster(const Answer& answer, const RankedSchedule& row, const RankedSchedule& than);

/// Returns the first three names, and how many more there are.
std::string some_names(const std::vector<std::string_view>& names);
/// Returns why rows can't be used, a text a reason: "SCHEDULE, ..: REASON".
std::vector<std::string> refusals_of(const std::vector<RankedSchedule>& rows);

/// Returns the row to use: the first of the ranking, unless another one that takes another time ran clearly faster:
/// more than 1 %, and the medians of the two likely lie apart (likely_s). Throws Unsupported where no schedule is left.
const RankedSchedule& recommended(const Answer& answer);

/// Returns how far the sound trials are off their predictions at most, as a share; 0: there are none.
double worst_error(const Answer& answer);
/// How far off its prediction a trial may be, as a share; one farther off says that the predictions are of a
/// machine in another state.
inline constexpr double kFarOff = 0.25;
/// Returns one line saying that trials are farther off than kFarOff, and what may be wrong; empty: none is.
std::string far_off_text(const Answer& answer);

/// Returns whether weak rows price what is recommended, its own run did not go well, or a trial is farther off than
/// kFarOff.
bool doubtful(const Answer& answer);

/// Returns in a few words whether the recommendation is safe, and what it is predicted and was measured to gain over
/// tutel: "within the error: predicted 1.020x over tutel, ran slower (0.991x)".
std::string verdict_of(const Answer& answer);

std::string text_of(const Answer& answer);
/// Returns the parts of the text with all that there is to say, as records keep them.
std::vector<AnswerPart> parts_of(const Answer& answer);
Json json_of(const Answer& answer);
/// Returns the numbers of a ranked schedule, or why it can't be used.
Json json_of(const commands::ChosenModel& chosen, const Profile& profile, const RankedSchedule& row);

}  // namespace moe::tuner
