#pragma once
// Computes what stands in the middle of numbers, or at a share of them. Every function throws WrongResult where there
// are none.
#include <optional>
#include <span>
#include <vector>

namespace moe {

double mean(std::span<const double> values);
/// Returns the mean of the two in the middle of an even count.
double median(std::vector<double> values);
/// Returns the greater of the two in the middle of an even count: the ([n / 2] + 1)th of n.
double upper_median(std::vector<double> values);

/// Returns the value at a share in [0, 1], by linear interpolation between neighbours: 0 gives the least, 1 the most.
double quantile(std::vector<double> values, double share);
/// Returns the least of the values that at least a share in [0, 1] of them does not exceed.
double nearest_rank(std::vector<double> values, double share);

struct Interval {
  double low = 0, high = 0;
};
/// Returns where the median of what the values are samples of lies with a probability of 95 % or more, whatever its
/// distribution: from the jth least to the jth most of n values, with the greatest j for which a binomial variable of n
/// trials at 1/2 is below j with probability 2.5 % or less. Returns none below six values: not even all of them reach
/// it. Source: H. A. David and H. N. Nagaraja, Order Statistics, 3rd edition, section 7.1.
std::optional<Interval> median_interval(std::vector<double> values);

}  // namespace moe
