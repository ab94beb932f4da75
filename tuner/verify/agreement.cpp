#include "tuner/verify/agreement.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "moe/base/statistics.h"
#include "moe/measure/core_probe.h"
#include "moe/record/pass_times.h"
#include "tuner/run_times.h"
#include "verbs/run/layer_records.h"

namespace moe::tuner {
namespace {

constexpr double kFewestSound = 0.5;  // of all runs, that figures may be made of
constexpr size_t kLongestReason = 120;

// Returns the layer's sound runs of schedules, without tried degrees.
std::vector<const CaseRecord*> sound_runs(const verbs::LayerOutcome& outcome) {
  std::vector<const CaseRecord*> sound;
  for (const verbs::ScheduleRun& run : outcome.runs)
    if (ran_well(run.record)) sound.push_back(&run.record);
  return sound;
}

const CaseRecord* sound_run(const verbs::LayerOutcome& outcome, std::string_view schedule) {
  for (const CaseRecord* record : sound_runs(outcome))
    if (record->schedule == schedule) return record;
  return nullptr;
}

// Returns the median over every other pass, from `first` on.
double median_of_half(const CaseRecord& record, size_t first) {
  const std::vector<double> passes = passes_s(record);
  std::vector<double> half;
  for (size_t i = first; i < passes.size(); i += 2) half.push_back(passes[i]);
  return half.empty() ? 0 : median(half);
}

// Computes the agreement of the sound runs.
Agreement agreement(const std::vector<verbs::LayerOutcome>& outcomes) {
  Agreement a;
  std::vector<double> errors, fast, overruns;
  for (const CaseRecord* record : runs_of(outcomes)) {
    if (record->status != CaseStatus::unsupported) ++a.runs;
    if (!ran_well(*record)) continue;
    errors.push_back(std::abs(error_of(*record)));
    if (core_slowdown(*record) <= measure::kSlowCores) fast.push_back(errors.back());
    a.worst_slowdown = std::max(a.worst_slowdown, core_slowdown(*record));
    if (record->summary.has("overrun_share")) overruns.push_back(record->summary.number("overrun_share", record->key));
  }
  a.sound = static_cast<int>(errors.size());
  a.on_slow_cores = static_cast<int>(errors.size() - fast.size());
  if (!fast.empty()) a.fast_median = median(fast), a.fast_worst = quantile(fast, 1);
  if (!errors.empty()) a.median_error = median(errors), a.worst_error = quantile(errors, 1);
  if (!overruns.empty()) a.median_overruns = median(overruns), a.worst_overruns = quantile(overruns, 1);
  return a;
}

std::map<std::string, int> left_out(const std::vector<verbs::LayerOutcome>& outcomes) {
  std::map<std::string, int> reasons;
  for (const CaseRecord* record : runs_of(outcomes))
    if (record->status == CaseStatus::invalid)
      ++reasons["invalid: too many tasks outlasted their modelled time"];
    else if (!ran_well(*record))
      ++reasons[fmt::format("{}: {}", name_of(record->status), record->reason.substr(0, kLongestReason))];
  return reasons;
}

}  // namespace

std::vector<const CaseRecord*> runs_of(const verbs::LayerOutcome& outcome) {
  std::vector<const CaseRecord*> all;
  for (const verbs::ScheduleRun& run : outcome.runs) all.push_back(&run.record);
  for (const CaseRecord& record : outcome.tried) all.push_back(&record);
  return all;
}

std::vector<const CaseRecord*> runs_of(const std::vector<verbs::LayerOutcome>& outcomes) {
  std::vector<const CaseRecord*> all;
  for (const verbs::LayerOutcome& outcome : outcomes) std::ranges::move(runs_of(outcome), std::back_inserter(all));
  return all;
}

MeasuredSchedule measured_schedule(const std::vector<verbs::LayerOutcome>& outcomes, std::string_view schedule) {
  MeasuredSchedule m;
  for (const verbs::LayerOutcome& outcome : outcomes) {
    const CaseRecord *tutel = sound_run(outcome, "tutel"), *own = sound_run(outcome, schedule);
    if (tutel == nullptr || own == nullptr) continue;
    ++m.layers;
    m.measured += run_s(*tutel) / run_s(*own);
    m.predicted += predicted_s(*tutel) / predicted_s(*own);
    m.apart += own->degree_forward != own->degree_backward;
  }
  if (m.layers > 0) m.measured /= m.layers, m.predicted /= m.layers;
  return m;
}

BestDegrees best_degrees(const std::vector<verbs::LayerOutcome>& outcomes, Times times) {
  BestDegrees best;
  for (const verbs::LayerOutcome& outcome : outcomes) {
    const auto& tried = outcome.tried;
    if (tried.empty() || !std::ranges::all_of(tried, ran_well)) continue;
    const auto seconds = [&](const CaseRecord& r, std::string_view phase) {
      return (times == Times::measured ? r.summary : r.prediction).number(phase, r.key);
    };
    const auto forward = [&](const CaseRecord& r) { return seconds(r, "forward_s"); };
    const auto backward = [&](const CaseRecord& r) { return seconds(r, "backward_s"); };
    const auto both = [&](const CaseRecord& r) { return forward(r) + backward(r); };
    const CaseRecord& f = *std::ranges::min_element(tried, {}, forward);
    const CaseRecord& b = *std::ranges::min_element(tried, {}, backward);
    const double equal_s = both(*std::ranges::min_element(tried, {}, both));
    ++best.layers;
    best.apart += f.degree_forward != b.degree_backward;
    best.apart_by_1_percent += equal_s > 1.01 * (forward(f) + backward(b));
  }
  return best;
}

Ranking ranking(const std::vector<verbs::LayerOutcome>& outcomes) {
  Ranking r;
  for (const verbs::LayerOutcome& outcome : outcomes) {
    const std::vector<const CaseRecord*> sound = sound_runs(outcome);
    for (size_t i = 0; i < sound.size(); ++i)
      for (size_t j = i + 1; j < sound.size(); ++j) {
        const CaseRecord &a = *sound[i], &b = *sound[j];
        const double ratio = predicted_s(a) / predicted_s(b);
        if (std::abs(std::log(ratio)) <= std::log1p(kClearDifference)) continue;
        ++r.pairs;
        r.agree += (ratio < 1) == (run_s(a) < run_s(b));
      }
  }
  return r;
}

ErrorParts error_parts(const std::vector<verbs::LayerOutcome>& outcomes) {
  ErrorParts parts;
  std::map<std::string, double> excess_s;
  double all_predicted_s = 0, all_run_s = 0;
  for (const CaseRecord* record : runs_of(outcomes)) {
    if (!ran_well(*record)) continue;
    all_predicted_s += predicted_s(*record), all_run_s += run_s(*record);
    for (const auto& [name, value] : record->summary)
      if (name.starts_with(verbs::kExcess))
        excess_s[name.substr(verbs::kExcess.size())] += record->summary.number(name, record->key);
  }
  if (all_predicted_s <= 0) return parts;
  parts.total = parts.rest = all_run_s / all_predicted_s - 1;
  for (const auto& [kind, seconds] : excess_s) {
    parts.kinds.emplace_back(kind, seconds / all_predicted_s);
    parts.rest -= seconds / all_predicted_s;
  }
  std::ranges::sort(parts.kinds, std::greater(), [](const auto& part) { return std::abs(part.second); });
  return parts;
}

ChoiceLoss choice_loss(const std::vector<verbs::LayerOutcome>& outcomes) {
  ChoiceLoss all;
  for (const verbs::LayerOutcome& outcome : outcomes) {
    std::vector<const CaseRecord*> sound = sound_runs(outcome);
    std::erase_if(sound, [](auto* r) { return median_of_half(*r, 1) == 0; });
    if (sound.size() < 2) continue;
    const CaseRecord* chosen = *std::ranges::min_element(sound, {}, [](auto* r) { return predicted_s(*r); });
    const CaseRecord* best = *std::ranges::min_element(sound, {}, [](auto* r) { return median_of_half(*r, 0); });
    const double lost = median_of_half(*chosen, 1) / median_of_half(*best, 1) - 1;
    ++all.layers;
    all.mean += lost;
    all.worst = std::max(all.worst, lost);
  }
  if (all.layers > 0) all.mean /= all.layers;
  return all;
}

RunTime run_time(const std::vector<verbs::LayerOutcome>& outcomes) {
  RunTime time;
  double longest_s = 0;
  for (const verbs::LayerOutcome& layer : outcomes) {
    const CaseRecord* any = nullptr;  // each run's record has the layer's times
    for (const CaseRecord* r : runs_of(layer)) {
      if (!r->summary.has("timed_wall_s")) continue;
      any = r;
      if (r->summary.has("repeats")) time.repeats += r->summary.whole("repeats", r->key);
    }
    if (any == nullptr) continue;
    const double timed_s = any->summary.number("timed_wall_s", any->key);
    time.proving_s += any->summary.number("proving_wall_s", any->key);
    time.unpaced_s += any->summary.number("unpaced_wall_s", any->key);
    time.timed_s += timed_s;
    if (timed_s > longest_s) longest_s = timed_s, time.longest = any;
  }
  return time;
}

bool RunFigures::doubtful() const { return agreement.sound == 0 || agreement.sound < kFewestSound * agreement.runs; }

RunFigures figures_of(const std::vector<verbs::LayerOutcome>& outcomes) {
  return {.layers = static_cast<int>(outcomes.size()),
          .agreement = agreement(outcomes),
          .ranking = ranking(outcomes),
          .errors = error_parts(outcomes),
          .choice = choice_loss(outcomes),
          .time = run_time(outcomes),
          .best_measured = best_degrees(outcomes, Times::measured),
          .best_predicted = best_degrees(outcomes, Times::predicted),
          .left_out = left_out(outcomes)};
}

}  // namespace moe::tuner
