#include "tuner/verify/agreement.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "moe/base/statistics.h"
#include "moe/record/over_ranks.h"
#include "verbs/run/layer_records.h"

namespace moe::tuner {
namespace {

double predicted(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double measured(const CaseRecord& record) { return record.summary.number("total_s", record.key); }

const CaseRecord* run_well(const LayerOutcome& outcome, std::string_view schedule) {
  for (const ScheduleRun& run : outcome.runs)
    if (const CaseRecord& r = run.record; r.schedule == schedule && r.status == CaseStatus::ok && was_timed(r))
      return &r;
  return nullptr;
}

}  // namespace

bool was_timed(const CaseRecord& record) { return record.summary.has("total_s"); }

std::vector<const CaseRecord*> runs_of(const LayerOutcome& outcome) {
  std::vector<const CaseRecord*> all;
  for (const ScheduleRun& run : outcome.runs) all.push_back(&run.record);
  for (const CaseRecord& record : outcome.tried) all.push_back(&record);
  return all;
}

std::vector<const CaseRecord*> runs_of(const std::vector<LayerOutcome>& outcomes) {
  std::vector<const CaseRecord*> all;
  for (const LayerOutcome& outcome : outcomes) std::ranges::move(runs_of(outcome), std::back_inserter(all));
  return all;
}

MeasuredSchedule measured_schedule(const std::vector<LayerOutcome>& outcomes, std::string_view schedule) {
  MeasuredSchedule m;
  for (const LayerOutcome& outcome : outcomes) {
    const CaseRecord *tutel = run_well(outcome, "tutel"), *own = run_well(outcome, schedule);
    if (tutel == nullptr || own == nullptr) continue;
    ++m.layers;
    m.measured += measured(*tutel) / measured(*own);
    m.predicted += predicted(*tutel) / predicted(*own);
    m.apart += own->degree_forward != own->degree_backward;
  }
  if (m.layers > 0) m.measured /= m.layers, m.predicted /= m.layers;
  return m;
}

BestDegrees best_degrees(const std::vector<LayerOutcome>& outcomes, Times times) {
  BestDegrees best;
  for (const LayerOutcome& outcome : outcomes) {
    const auto& tried = outcome.tried;
    if (tried.empty() || !std::ranges::all_of(tried, [](auto& r) { return r.status == CaseStatus::ok; })) continue;
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

Ranking ranking(const std::vector<LayerOutcome>& outcomes) {
  Ranking r;
  for (const LayerOutcome& outcome : outcomes)
    for (const ScheduleRun& one : outcome.runs)
      for (const ScheduleRun& other : outcome.runs) {
        const CaseRecord &a = one.record, &b = other.record;
        if (&one >= &other || !was_timed(a) || !was_timed(b)) continue;
        const double ratio = predicted(a) / predicted(b);
        if (std::abs(std::log(ratio)) <= std::log1p(kClearDifference)) continue;
        ++r.pairs;
        r.agree += (ratio < 1) == (measured(a) < measured(b));
      }
  return r;
}

Agreement agreement(const std::vector<LayerOutcome>& outcomes) {
  Agreement a;
  std::vector<double> errors, overruns;
  for (const CaseRecord* record : runs_of(outcomes)) {
    if (!was_timed(*record)) continue;
    errors.push_back(std::abs(measured_over_predicted(*record) - 1));
    if (record->summary.has("overrun_share")) overruns.push_back(record->summary.number("overrun_share", record->key));
  }
  a.runs = static_cast<int>(errors.size());
  if (!errors.empty()) a.median_error = median(errors), a.worst_error = quantile(errors, 1);
  if (!overruns.empty()) a.median_overruns = median(overruns), a.worst_overruns = quantile(overruns, 1);
  return a;
}

ErrorParts error_parts(const std::vector<LayerOutcome>& outcomes) {
  ErrorParts parts;
  std::map<std::string, double> excess_s;
  double predicted_s = 0, measured_s = 0;
  for (const CaseRecord* record : runs_of(outcomes)) {
    if (record->status != CaseStatus::ok || !was_timed(*record)) continue;
    predicted_s += predicted(*record), measured_s += measured(*record);
    for (const auto& [name, value] : record->summary)
      if (name.starts_with(kExcess)) excess_s[name.substr(kExcess.size())] += record->summary.number(name, record->key);
  }
  if (predicted_s <= 0) return parts;
  parts.total = parts.rest = measured_s / predicted_s - 1;
  for (const auto& [kind, seconds] : excess_s) {
    parts.kinds.emplace_back(kind, seconds / predicted_s);
    parts.rest -= seconds / predicted_s;
  }
  std::ranges::sort(parts.kinds, std::greater(), [](const auto& part) { return std::abs(part.second); });
  return parts;
}

namespace {

// The median over every other pass, from `first` on.
double median_of_half(const CaseRecord& record, size_t first) {
  std::vector<double> half;
  for (const Samples& samples : record.samples)
    if (samples.name == "total_s") {
      const std::vector<double> totals = max_over_ranks(samples.values);
      for (size_t i = first; i < totals.size(); i += 2) half.push_back(totals[i]);
    }
  return half.empty() ? 0 : median(half);
}

}  // namespace

ChoiceLoss choice_loss(const std::vector<LayerOutcome>& outcomes) {
  ChoiceLoss all;
  for (const LayerOutcome& outcome : outcomes) {
    std::vector<const CaseRecord*> timed;
    for (const ScheduleRun& run : outcome.runs)
      if (const CaseRecord& r = run.record; r.status == CaseStatus::ok && was_timed(r) && median_of_half(r, 1) > 0)
        timed.push_back(&r);
    if (timed.size() < 2) continue;
    const CaseRecord* chosen = *std::ranges::min_element(timed, {}, [](auto* r) { return predicted(*r); });
    const CaseRecord* best = *std::ranges::min_element(timed, {}, [](auto* r) { return median_of_half(*r, 0); });
    const double lost = median_of_half(*chosen, 1) / median_of_half(*best, 1) - 1;
    ++all.layers;
    all.mean += lost;
    all.worst = std::max(all.worst, lost);
  }
  if (all.layers > 0) all.mean /= all.layers;
  return all;
}

RunTime run_time(const std::vector<LayerOutcome>& outcomes) {
  RunTime time;
  double longest_s = 0;
  for (const LayerOutcome& layer : outcomes) {
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

}  // namespace moe::tuner
