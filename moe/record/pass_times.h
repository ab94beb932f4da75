#pragma once
// Reads what the samples of a timed case say of its passes.
#include <optional>
#include <vector>

#include "moe/base/statistics.h"
#include "moe/record/record.h"

namespace moe {

/// Returns each pass's seconds, of its slowest rank; empty: the record has no samples of totals.
std::vector<double> passes_s(const CaseRecord& record);
/// Returns where the run's median lies: median_interval() of its passes, or where they are too few for one the range
/// from the shortest to the longest. Returns none below four passes, whose ranges often lie apart by chance.
std::optional<Interval> likely_s(const CaseRecord& record);

/// Returns "3.1 % (0.4 %)": the most minus the least of samples over their median, and in brackets how far the median
/// may be off, where an interval of it is known.
std::string spread_text(double least_s, double most_s, double median_s, const std::optional<Interval>& within);

/// Returns samples of one rank, of which `values` has one an iteration.
std::vector<std::vector<double>> one_rank(const std::vector<double>& values);

// Reduces what each rank's clock says, values[iteration][rank], to one number an iteration.

std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values);
std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values);

}  // namespace moe
