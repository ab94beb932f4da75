#pragma once
// What a whole `tune` found, as text and as JSON.
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/cost/fit.h"
#include "tuner/verify/agreement.h"
#include "verbs/run/layer_run.h"
#include "verbs/sweep.h"

namespace moe::tuner {

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
  std::vector<verbs::SweepRow> rows;
  std::vector<verbs::LayerOutcome> outcomes;
  std::string records_path, profile_path, trace_path;
  double measuring_s = 0, planning_s = 0;  // wall time of the first step, and of planning all layers
};

/// Return the results as text and as JSON; `figures` are of the results' outcomes.
std::string text_of(const VerifiedResults& results, const RunFigures& figures);
Json json_of(const VerifiedResults& results, const RunFigures& figures);
/// Returns why the figures are doubtful.
std::string doubt_text(const RunFigures& figures);

}  // namespace moe::tuner
