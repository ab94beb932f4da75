#include "moe/prices/price_curve.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

using Point = std::array<double, 2>;

constexpr double kStraight = 1e-9;  // smaller relative differences of slopes are rounding errors

double slope(const Point& from, const Point& to) { return (to[1] - from[1]) / (to[0] - from[0]); }

double interpolated(const Point& from, const Point& to, double work) {
  return from[1] + (work - from[0]) / (to[0] - from[0]) * (to[1] - from[1]);
}

}  // namespace

double PriceCurve::seconds(double work) const {
  if (knots.empty()) return alpha + work * beta;
  const auto upper = std::ranges::upper_bound(knots, work, {}, [](const Point& knot) { return knot[0]; });
  if (upper == knots.end()) return knots.back()[1] + (work - knots.back()[0]) * beta;
  return interpolated(upper == knots.begin() ? Point{0, alpha} : *(upper - 1), *upper, work);
}

// Idea: parts w1 + w2 + .. = work take at least work times the minimum of t(w) / w over 0 < w <= largest. On a straight
// piece of t this ratio is monotone, so its minimum is at a knot or at `largest`.
MinSeconds PriceCurve::seconds_in_parts(double work, double largest, double overhead) const {
  const double largest_s = seconds(largest) + overhead;
  MinSeconds least{largest_s, std::min(largest_s, alpha + overhead)};
  if (work <= 0) return least;
  least.all = work / largest * largest_s;
  for (const auto& [size, knot_s] : knots) {
    if (size > largest) break;
    least.all = std::min(least.all, work / size * (knot_s + overhead));
    least.one = std::min(least.one, knot_s + overhead);
  }
  return least;
}

std::vector<double> PriceCurve::breakpoints() const {
  std::vector<double> sizes;
  Point last{0, alpha};
  for (size_t i = 0; i < knots.size(); ++i) {
    const double before = slope(last, knots[i]), after = i + 1 < knots.size() ? slope(knots[i], knots[i + 1]) : beta;
    if (std::abs(after - before) > kStraight * std::max(std::abs(after), std::abs(before)))
      sizes.push_back(knots[i][0]);
    last = knots[i];
  }
  return sizes;
}

void PriceCurve::stretch(double times) {
  beta *= times;
  for (auto& knot : knots) knot[0] /= times;
}

void PriceCurve::add(const PriceCurve& other, double times) {
  Points sums;
  for (const PriceCurve* curve : {static_cast<const PriceCurve*>(this), &other})
    for (const Point& knot : curve->knots) sums.push_back({knot[0], seconds(knot[0]) + times * other.seconds(knot[0])});
  std::ranges::sort(sums);
  const auto same = std::ranges::unique(sums, {}, [](const Point& sum) { return sum[0]; });
  sums.erase(same.begin(), same.end());
  knots = std::move(sums);
  alpha += times * other.alpha;
  beta += times * other.beta;
}

PriceCurve price_curve(const CommRow& row) {
  if (row.points.empty()) return {row.alpha_s, row.beta_s_per_byte};
  const Points& points = row.points;
  const double first_slope = slope(points[0], points[1]), last_slope = slope(points[points.size() - 2], points.back());
  return {std::max(0.0, points[0][1] - points[0][0] * first_slope), std::max(0.0, last_slope), points};
}

}  // namespace moe
