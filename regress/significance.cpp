#include "regress/significance.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/hypergeometric.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/statistics.h"

namespace moe::regress {
namespace {

constexpr size_t kMostFlipped = 40;
constexpr double kMostOfMedian = 1.25, kTrimmed = 0.2;
constexpr double kRounding = 1e-12;  // of the sum of all sizes: equal sums in another order

// Returns the sums under all signs, sorted: each value doubles them, in two sorted halves.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums{0}, less, more;
  for (const double value : values) {
    less = more = sums;
    for (double& sum : less) sum -= std::abs(value);
    for (double& sum : more) sum += std::abs(value);
    sums.clear();
    std::ranges::merge(less, more, std::back_inserter(sums));
  }
  return sums;
}

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  Moments m{mean(values), 0};
  for (const double value : values) m.variance += (value - m.mean) * (value - m.mean);
  m.variance = values.size() > 1 ? m.variance / (count - 1) : 0;
  return m;
}

double two_sided(double z) { return 2 * boost::math::cdf(boost::math::normal(), -std::abs(z)); }

}  // namespace

double sign_flip_p(std::span<const double> values) {
  require<BadInput>(values.size() <= kMostFlipped, "sign flips: found {} values, expected at most {}", values.size(),
                    kMostFlipped);
  if (values.empty()) return 1;
  std::vector<double> clipped(values.begin(), values.end());
  for (double& value : clipped) value = std::abs(value);
  const double most = kMostOfMedian * median(clipped);
  std::ranges::transform(values, clipped.begin(), [&](double value) { return std::clamp(value, -most, most); });
  double sum = 0, size = 0;
  for (const double value : clipped) sum += value, size += std::abs(value);
  const double least = sum - kRounding * size;
  // Any signs of the first half meet all signs of the second that together reach the sum.
  const auto all = std::span<const double>(clipped);
  const std::vector<double> first = signed_sums(all.first(all.size() / 2));
  const std::vector<double> second = signed_sums(all.subspan(all.size() / 2));
  size_t reached = 0, from = second.size();
  for (const double part : first) {
    while (from > 0 && part + second[from - 1] >= least) --from;
    reached += second.size() - from;
  }
  return static_cast<double>(reached) / static_cast<double>(first.size()) / static_cast<double>(second.size());
}

TrimmedMean trimmed_mean(std::vector<double> values) {
  TrimmedMean out;
  if (values.empty()) return out;
  std::ranges::sort(values);
  const auto cut = static_cast<size_t>(kTrimmed * static_cast<double>(values.size()));
  const std::span<const double> kept(values.data() + cut, values.size() - 2 * cut);
  out.mean = moments_of(kept).mean;
  out.kept = static_cast<int>(kept.size());
  out.values_ = values.size();
  const double least = kept.front(), most = kept.back();
  for (double& value : values) value = std::clamp(value, least, most);
  out.deviation = std::sqrt(moments_of(values).variance) / (1 - 2 * kTrimmed);
  if (cut == 0) out.deviation = std::sqrt(moments_of(values).variance);
  return out;
}

Interval TrimmedMean::interval(double confidence) const {
  if (kept < 2) return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  const double t = boost::math::quantile(boost::math::students_t(kept - 1), (1 + confidence) / 2);
  const double half = t * deviation / std::sqrt(static_cast<double>(values_));
  return {mean - half, mean + half};
}

double fisher_p(int64_t slow, int64_t launches, int64_t base_slow, int64_t base_launches) {
  const auto all = static_cast<unsigned>(launches + base_launches), of_all = static_cast<unsigned>(slow + base_slow);
  const boost::math::hypergeometric draws(of_all, static_cast<unsigned>(launches), all);
  if (slow <= boost::math::support(draws).first) return 1;
  return boost::math::cdf(boost::math::complement(draws, static_cast<unsigned>(slow - 1)));
}

Interval share_interval(int64_t hits, int64_t of, double confidence) {
  if (of == 0) return {0, 1};
  using Binomial = boost::math::binomial;
  const double beside = (1 - confidence) / 2;
  const auto trials = static_cast<double>(of), found = static_cast<double>(hits);
  return {hits == 0 ? 0 : Binomial::find_lower_bound_on_p(trials, found, beside),
          hits == of ? 1 : Binomial::find_upper_bound_on_p(trials, found, beside)};
}

std::vector<bool> holm(std::span<const double> p, double level) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return p[i]; });
  std::vector<bool> rejected(p.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    if (p[order[i]] > level / static_cast<double>(order.size() - i)) break;
    rejected[order[i]] = true;
  }
  return rejected;
}

double rank_sum_p(std::span<const double> a, std::span<const double> b) {
  std::map<double, std::pair<double, double>> counts;  // value -> how many in a, in both
  for (const double value : a) counts[value].first += 1, counts[value].second += 1;
  for (const double value : b) counts[value].second += 1;
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  double below = 0, ranks = 0, ties = 0;
  for (const auto& [value, count] : counts) {
    ranks += count.first * (below + (count.second + 1) / 2);
    below += count.second;
    ties += count.second * count.second * count.second - count.second;
  }
  const double variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)));
  return variance > 0 ? two_sided((ranks - n * (n + m + 1) / 2) / std::sqrt(variance)) : 1;
}

double welch_p(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return 1;
  const Moments x = moments_of(a), y = moments_of(b);
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double vx = x.variance / n, vy = y.variance / m;
  if (!(vx + vy > 0)) return 1;
  const double freedom = (vx + vy) * (vx + vy) / (vx * vx / (n - 1) + vy * vy / (m - 1));
  const double t = std::abs(x.mean - y.mean) / std::sqrt(vx + vy);
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(freedom), t));
}

}  // namespace moe::regress
