#include "tuner/run_times.h"

#include <algorithm>

#include "moe/record/over_ranks.h"

namespace moe::tuner {
namespace {

// Ranges of four passes each lie apart in one order by chance once in 70 times, of three once in 20.
constexpr size_t kFewestPasses = 4;

}  // namespace

bool was_timed(const CaseRecord& record) { return record.summary.has("total_s"); }
bool ran_well(const CaseRecord& record) { return record.status == CaseStatus::ok && was_timed(record); }
double predicted_s(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double run_s(const CaseRecord& record) { return record.summary.number("total_s", record.key); }
double error_of(const CaseRecord& record) { return run_s(record) / predicted_s(record) - 1; }

std::vector<double> passes_s(const CaseRecord& record) {
  const auto totals = std::ranges::find(record.samples, "total_s", &Samples::name);
  return totals == record.samples.end() ? std::vector<double>{} : max_over_ranks(totals->values);
}

std::optional<Interval> likely_s(const CaseRecord& record) {
  const std::vector<double> passes = passes_s(record);
  if (passes.size() < kFewestPasses) return std::nullopt;
  if (const auto interval = median_interval(passes)) return interval;
  return Interval{quantile(passes, 0), quantile(passes, 1)};
}

}  // namespace moe::tuner
