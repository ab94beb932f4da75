#pragma once
// Medians, quantiles and an interval of the median. Every function throws WrongResult if there are no
// values.
#include <optional>
#include <span>
#include <vector>

namespace moe {

double mean(std::span<const double> values);
/// Returns the median; for an even count, the mean of the two middle values.
double median(std::vector<double> values);
/// Returns the median; for an even count, the greater of the two middle values: the ([n / 2] + 1)th of n.
double upper_median(std::vector<double> values);

/// Returns the value at a share in [0, 1], by linear interpolation between neighbours: 0 gives the least, 1 the most.
double quantile(std::vector<double> values, double share);
/// Returns the least value that is at least as large as a share, in [0, 1], of all values.
double nearest_rank(std::vector<double> values, double share);

struct Interval {
  double low = 0, high = 0;
};
/// Returns an interval that contains the median of the samples' distribution with a probability of 95 % or more,
/// whatever the distribution: from the jth least to the jth greatest of n values, with the greatest j for which a
/// binomial variable of n trials at 1/2 is below j with probability 2.5 % or less. Returns none for fewer than six
/// values, which have no such j. Source: H. A. David and H. N. Nagaraja, Order Statistics, 3rd edition, section 7.1.
std::optional<Interval> median_interval(std::vector<double> values);

}  // namespace moe
