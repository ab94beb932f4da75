#include "moe/cost/price_curve.h"

#include <algorithm>

namespace moe::cost {
namespace {

double interpolate(const Points& points, double work) {
  const auto upper = std::upper_bound(points.begin(), points.end(), work,
                                      [](double value, const auto& point) { return value < point[0]; });
  if (upper == points.end()) return points.back()[1];
  const auto lower = upper - 1;
  const double share = (work - (*lower)[0]) / ((*upper)[0] - (*lower)[0]);
  return (*lower)[1] + share * ((*upper)[1] - (*lower)[1]);
}

}  // namespace

double PriceCurve::seconds(double work) const {
  const double hook = hook_alpha + work * hook_beta;
  if (points != nullptr && work >= points->front()[0] && work <= points->back()[0])
    return hook + interpolate(*points, work);
  return hook + alpha + work * beta;
}

// Parts w1 + w2 + .. = work take at least work times the least t(w) / w of any w up to the largest. On a straight piece
// of t that ratio is monotone: its least is at an end of a piece. Where alpha and beta hold below the first point the
// ratio falls: its least is at that point, by either price. Behind the last point it falls too: its least is at the
// largest. So alpha-beta rows without points give alpha + work beta where one part may be all.
Parts PriceCurve::in_parts(double work, double largest, double overhead) const {
  const double largest_s = seconds(largest) + overhead;
  Parts least{largest_s, std::min(largest_s, seconds(0) + overhead)};
  if (work <= 0) return least;
  if (points == nullptr) return {work / largest * largest_s, least.one};
  double rate = largest_s / largest;
  const auto consider = [&](double part, double part_s) {
    if (part > largest) return;
    rate = std::min(rate, (part_s + overhead) / part);
    least.one = std::min(least.one, part_s + overhead);
  };
  const double first = points->front()[0];
  consider(first, hook_alpha + first * hook_beta + alpha + first * beta);
  for (const auto& point : *points) consider(point[0], seconds(point[0]));
  least.all = work * rate;
  return least;
}

}  // namespace moe::cost
