#include "layerbench/regret.h"

#include <algorithm>

#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"

namespace moe::layerbench {
namespace {

struct TimedChoice {
  double predicted_s;
  double half_s[2];  // medians over the even and the odd passes
};

// Returns none if the schedule has no sound run, or one of too few passes.
std::optional<TimedChoice> candidate_of(const CaseRecord& record) {
  if (record.status != CaseStatus::ok || !record.prediction.has("total_s")) return std::nullopt;
  const std::vector<double> passes = passes_s(record);
  std::vector<double> halves[2];
  for (size_t pass = 0; pass < passes.size(); ++pass) halves[pass % 2].push_back(passes[pass]);
  if (halves[1].empty()) return std::nullopt;
  return TimedChoice{record.prediction.number("total_s", record.key), {median(halves[0]), median(halves[1])}};
}

double regret_among(const std::vector<TimedChoice>& candidates) {
  const TimedChoice& chosen = *std::ranges::min_element(candidates, {}, &TimedChoice::predicted_s);
  double sum = 0;
  for (const int half : {0, 1}) {
    const auto picked_by = [half](const TimedChoice& c) { return c.half_s[half]; };
    const TimedChoice& best = *std::ranges::min_element(candidates, {}, picked_by);
    sum += chosen.half_s[1 - half] / best.half_s[1 - half] - 1;
  }
  return sum / 2;
}

}  // namespace

std::optional<Regret> regret_of(const std::vector<commands::LayerOutcome>& outcomes) {
  Regret all;
  for (const commands::LayerOutcome& outcome : outcomes) {
    std::vector<TimedChoice> candidates;
    for (const commands::ScheduleRun& run : outcome.runs)
      if (const auto candidate = candidate_of(run.record)) candidates.push_back(*candidate);
    if (candidates.size() < 2) continue;
    const double regret = regret_among(candidates);
    if (all.layers == 0 || regret > all.worst) all.worst = regret, all.worst_layer = outcome.layer;
    all.mean += regret;
    ++all.layers;
  }
  if (all.layers == 0) return std::nullopt;
  all.mean /= all.layers;
  return all;
}

}  // namespace moe::layerbench
