#pragma once
// The times of passes in the samples of a timed case.
#include <optional>
#include <vector>

#include "moe/base/statistics.h"
#include "moe/record/record.h"

namespace moe {

/// Returns the seconds of each pass on its slowest rank; empty if the record has no samples named total_s.
std::vector<double> passes_s(const CaseRecord& record);
/// Returns an interval that likely contains the run's median: median_interval() of its passes or, if there are too few
/// for that, the range from the shortest to the longest pass. Empty for fewer than four passes, whose ranges are often
/// disjoint by chance.
std::optional<Interval> median_interval_s(const CaseRecord& record);

/// Returns "3.1 % (0.4 %)": the range of the samples relative to their median and, in brackets, the possible error of
/// the median by `within`; without brackets if that is empty.
std::string spread_text(double min_s, double max_s, double median_s, const std::optional<Interval>& within);

/// Returns samples [iteration][rank] of a single rank with these values, one per iteration.
std::vector<std::vector<double>> single_rank_samples(const std::vector<double>& values);

// These reduce samples values[iteration][rank] to one number per iteration.

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values);
std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values);

}  // namespace moe
