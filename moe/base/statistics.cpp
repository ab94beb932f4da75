#include "moe/base/statistics.h"

#include <algorithm>
#include <boost/math/statistics/univariate_statistics.hpp>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"

namespace moe {
namespace {

void require_any(std::span<const double> values) { require<WrongResult>(!values.empty(), "statistics: no samples"); }

}  // namespace

double mean(std::span<const double> values) {
  require_any(values);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  require_any(values);
  return boost::math::statistics::median(values);
}

double upper_median(std::vector<double> values) {
  require_any(values);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double quantile(std::vector<double> values, double share) {
  require_any(values);
  std::ranges::sort(values);
  const double place = share * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

std::optional<Interval> median_interval(std::vector<double> values) {
  constexpr double kOutsideEachEnd = 0.025;
  require_any(values);
  std::ranges::sort(values);
  const double n = static_cast<double>(values.size());
  const auto probability = [&](double k) {
    return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  };
  size_t j = 0;
  double below = probability(0);  // probability of at most j heads
  while (below <= kOutsideEachEnd) below += probability(static_cast<double>(++j));
  if (j == 0) return std::nullopt;
  return Interval{values[j - 1], values[values.size() - j]};
}

double nearest_rank(std::vector<double> values, double share) {
  require_any(values);
  std::ranges::sort(values);
  const double place = std::ceil(share * static_cast<double>(values.size()) - 1e-9);  // 0.95 of 20 is the 19th
  return values.at(static_cast<size_t>(std::max(1.0, place)) - 1);
}

}  // namespace moe
