#pragma once
// Of samples: the median, and how far they spread.
#include <vector>

namespace moe {

/// Throws WrongResult for no samples.
double median(std::vector<double> samples);
/// q in [0, 1], by linear interpolation.
double quantile(std::vector<double> samples, double q);

/// values[iteration][rank] -> one number an iteration: its slowest rank.
std::vector<double> max_over_ranks(const std::vector<std::vector<double>>& values);

}  // namespace moe
