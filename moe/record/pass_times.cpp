#include "moe/record/pass_times.h"

#include <algorithm>
#include <fmt/format.h>

#include "moe/base/units.h"

namespace moe {
namespace {

// If two equal runs have four passes each, all passes of the first are faster than all of the second once in 70 times
// by chance; with three passes each, once in 20 times.
constexpr size_t kMinPasses = 4;

}  // namespace

std::vector<double> passes_s(const CaseRecord& record) {
  const Samples* totals = find_samples(record, "total_s");
  return totals != nullptr ? max_over_ranks(totals->values) : std::vector<double>{};
}

std::optional<Interval> median_interval_s(const CaseRecord& record) {
  const std::vector<double> passes = passes_s(record);
  if (passes.size() < kMinPasses) return std::nullopt;
  if (const auto interval = median_interval(passes)) return interval;
  return Interval{quantile(passes, 0), quantile(passes, 1)};
}

std::string spread_text(double min_s, double max_s, double median_s, const std::optional<Interval>& within) {
  const std::string spread = percent((max_s - min_s) / median_s);
  if (!within) return spread;
  const double off_s = std::max(within->high - median_s, median_s - within->low);
  return fmt::format("{} ({:.1f} %)", spread, 100 * off_s / median_s);
}

std::vector<std::vector<double>> single_rank_samples(const std::vector<double>& values) {
  std::vector<std::vector<double>> rows;
  for (const double value : values) rows.push_back({value});
  return rows;
}

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values) {
  std::vector<double> most;
  for (const auto& ranks : values) most.push_back(*std::ranges::max_element(ranks));
  return most;
}

std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values) {
  std::vector<double> least;
  for (const auto& ranks : values) least.push_back(*std::ranges::min_element(ranks));
  return least;
}

}  // namespace moe
