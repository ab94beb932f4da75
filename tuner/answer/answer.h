#pragma once
// The answer to "which schedule and degrees for my layer or model on this cluster": as text, and as JSON.
#include <optional>
#include <string>
#include <vector>

#include "moe/cost/fit.h"
#include "moe/record/record.h"
#include "tuner/answer/ranking.h"
#include "tuner/answer/shape_search.h"
#include "verbs/results_json.h"

namespace moe::tuner {

/// A schedule that the user has now, as --current says: NAME, NAME:R, NAME:R_F:R_B.
struct CurrentSchedule {
  const Schedule* schedule = nullptr;
  int degree_forward = 0, degree_backward = 0;  // 0: tuned
};
/// Throws BadInput naming the flag.
CurrentSchedule current_from(const std::string& text);

/// What was run for real to check the ranking.
struct Trial {
  CaseRecord record;
  bool current = false;  // of the schedule that the user has now
};

struct Answer {
  std::string cluster = {};  // its name
  std::string place = {};    // where it would run: the cluster's name, and what its ranks are
  const ChosenModel* chosen = nullptr;
  const FoundShapes* shapes = nullptr;  // that its parallel shape was chosen among; none: it was given
  const Profile* profile = nullptr;
  const FittedProfile* fitted = nullptr;  // none: the profile was taken as it stands
  bool emulated = false;
  std::vector<RankedSchedule> ranking = {};
  std::optional<RankedSchedule> current = {};
  std::vector<Neighbour> neighbours = {};  // of the first in the ranking
  std::vector<Trial> trials = {};
  int trial_layers = 0;        // of the model, that the trials ran
  std::string no_trials = {};  // why there are none
  int top = 5;                 // rows of the ranking that are shown, beside baselines and trials
  std::string records_path = {}, profile_path = {}, trace_path = {};
  std::string next = {};  // command lines that go on from here, one a line
};

/// Returns the row to use: the fastest trial's, where at least two ran well, else the first of the ranking. Throws
/// Unsupported where no schedule is left.
const RankedSchedule& recommended(const Answer& answer);

std::string text_of(const Answer& answer);
Json json_of(const Answer& answer);

}  // namespace moe::tuner
