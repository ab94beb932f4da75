#pragma once
// Reads the times of passes from the samples of a timed case.
#include <optional>
#include <vector>

#include "moe/base/statistics.h"
#include "moe/record/record.h"

namespace moe {

/// Returns the seconds of each pass on its slowest rank; empty if the record has no samples of total_s.
std::vector<double> passes_s(const CaseRecord& record);
/// Returns an interval that likely contains the run's median: median_interval() of its passes or, if they are too few,
/// the range from the shortest to the longest. None below four passes, whose ranges are often disjoint by chance.
std::optional<Interval> likely_s(const CaseRecord& record);

/// Returns "3.1 % (0.4 %)": the range of the samples over their median and, in brackets, by how much of it the median
/// may be off; without brackets if `within` is none.
std::string spread_text(double least_s, double most_s, double median_s, const std::optional<Interval>& within);

/// Returns samples of one rank, of which `values` has one an iteration.
std::vector<std::vector<double>> one_rank(const std::vector<double>& values);

// Reduces what each rank's clock says, values[iteration][rank], to one number an iteration.

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values);
std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values);

}  // namespace moe
