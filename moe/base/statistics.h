#pragma once
// What stands in the middle of numbers, or at a share of them. Every function throws WrongResult where there are none.
#include <span>
#include <vector>

namespace moe {

double mean(std::span<const double> values);
/// Returns the mean of the two in the middle of an even count.
double median(std::vector<double> values);
/// Returns the greater of the two in the middle of an even count: the ([n / 2] + 1)th of n.
double upper_median(std::vector<double> values);

/// share in [0, 1], by linear interpolation between neighbours: 0 gives the least, 1 the most.
double quantile(std::vector<double> values, double share);
/// Returns the least of the values that at least a share in [0, 1] of them does not exceed.
double nearest_rank(std::vector<double> values, double share);

}  // namespace moe
