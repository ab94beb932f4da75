#include "moe/search/algorithm1.h"

#include <algorithm>
#include <boost/math/tools/minima.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "moe/base/check.h"

namespace moe {
namespace {

// A difference of two times as a function of r: constant + linear r + inverse / r. The answer to each of the seven
// questions is whether such a difference is above 0.
struct Difference {
  double constant = 0, linear = 0, inverse = 0;
  double at(double r) const { return constant + linear * r + inverse / r; }
};

Difference operator+(const Difference& a, const Difference& b) {
  return {a.constant + b.constant, a.linear + b.linear, a.inverse + b.inverse};
}

Difference operator-(const Difference& a, const Difference& b) {
  return {a.constant - b.constant, a.linear - b.linear, a.inverse - b.inverse};
}

Difference constant_difference(const ChunkTime& line) { return {line.alpha_s, 0, line.whole_s}; }
Difference times_r(const ChunkTime& line) { return {line.whole_s, line.alpha_s, 0}; }
Difference times_r_less_1(const ChunkTime& line) { return times_r(line) - constant_difference(line); }

std::array<Difference, 7> differences(const PhaseCosts& c) {
  const Difference gar{c.gar_s, 0, 0};
  const Difference both = constant_difference(c.allgather) + constant_difference(c.reducescatter);
  const Difference hidden = times_r_less_1(c.alltoall) + times_r_less_1(c.alltoall);
  const Difference exposed = times_r(c.expert) - hidden + both;
  return {constant_difference(c.alltoall) - constant_difference(c.allgather),
          times_r(c.expert) - hidden,
          times_r(c.expert) - times_r_less_1(c.allgather) - times_r_less_1(c.reducescatter),
          gar - both,
          gar - exposed,
          gar - (times_r(c.allgather) + times_r(c.reducescatter) - hidden),
          gar - exposed};
}

// Returns the degrees at which an answer may change, ascending: both ends of the range, and the differences' roots,
// which are roots of quadratics in r.
std::vector<double> breakpoints(const PhaseCosts& costs, double max_degree) {
  std::set<double> points{1, max_degree};
  for (const Difference& d : differences(costs)) {
    if (d.constant == 0 && d.linear == 0 && d.inverse == 0) continue;  // the same answer everywhere
    const auto roots = boost::math::tools::quadratic_roots(d.linear, d.constant, d.inverse);
    for (const double root : {roots.first, roots.second})
      if (root > 1 && root < max_degree) points.insert(root);  // false for NaN, which means no root
  }
  return {points.begin(), points.end()};
}

CaseMinimum min_between(int which, const PhaseCosts& costs, double begin, double end) {
  const auto seconds = [&](double r) { return case_seconds(which, costs, r); };
  constexpr int kBits = std::numeric_limits<double>::digits / 2;  // the position of a minimum is not more precise
  const auto [r, least] = boost::math::tools::brent_find_minima(seconds, begin, end, kBits);
  CaseMinimum best{begin, seconds(begin)};
  for (const CaseMinimum& candidate : {CaseMinimum{r, least}, CaseMinimum{end, seconds(end)}})
    if (candidate.seconds < best.seconds) best = candidate;
  return best;
}

// Adds the two neighbours of `degree` in {1, 2, 4, 8}: the largest that is not above it and the smallest that is not
// below it, limited to `most_degree`.
void add_powers(double degree, int max_degree, std::set<int>& degrees) {
  int below = 1, above = 0;
  for (const int power : {8, 4, 2, 1})
    if (power <= max_degree && power >= degree) above = power;
  for (const int power : {1, 2, 4, 8})
    if (power <= max_degree && power <= degree) below = power;
  degrees.insert(below);
  if (above > 0) degrees.insert(above);
}

}  // namespace

PhaseCosts phase_costs(const LayerPricer& pricer, Phase phase, double gar_s) {
  const auto line = [&](TaskKind kind) {
    const double alpha = pricer.chunk_seconds(kind, phase, 0);
    return ChunkTime{alpha, pricer.chunk_seconds(kind, phase, pricer.all_rows()) - alpha};
  };
  const auto collective = [&](TaskKind kind, GroupKind group) {
    return pricer.groups()[group].network == Network::none ? ChunkTime{} : line(kind);
  };
  return {collective(TaskKind::dispatch, GroupKind::ep), collective(TaskKind::allgather, GroupKind::esp),
          collective(TaskKind::reducescatter, GroupKind::esp), line(TaskKind::expert), gar_s};
}

CaseConditions case_conditions(const PhaseCosts& costs, double r) {
  const double a2a = costs.alltoall.chunk(r), ag = costs.allgather.chunk(r), rs = costs.reducescatter.chunk(r);
  const double experts = r * costs.expert.chunk(r), hidden = 2 * (r - 1) * a2a, gar = costs.gar_s;
  return {a2a > ag,
          experts > hidden,
          experts > (r - 1) * (ag + rs),
          gar > ag + rs,
          gar > experts - hidden + ag + rs,
          gar > r * ag + r * rs - hidden,
          gar > ag + rs + experts - hidden};
}

int case_of(const CaseConditions& answers) {
  const auto [q1, q2, q3, q4, q5, q6, q7] = answers;
  if ((q1 && !q2 && q4) || (q1 && q2 && q5) || (!q1 && !q3 && q6) || (!q1 && q3 && q7)) return 1;
  if ((q1 && q2 && !q5) || (!q1 && q3 && !q7)) return 2;
  return q1 ? 3 : 4;
}

double case_seconds(int which, const PhaseCosts& costs, double r) {
  const double a2a = costs.alltoall.chunk(r), both = costs.allgather.chunk(r) + costs.reducescatter.chunk(r);
  switch (which) {
    case 1:
      return 2 * r * a2a + costs.gar_s;
    case 2:
      return 2 * a2a + both + r * costs.expert.chunk(r);
    case 3:
      return 2 * r * a2a + both;
    case 4:
      return 2 * a2a + r * both;
  }
  throw WrongResult(fmt::format("algorithm 1: found case {}, expected 1 to 4", which));
}

double predicted_seconds(const PhaseCosts& costs, double r) {
  return case_seconds(case_of(case_conditions(costs, r)), costs, r);
}

double overlappable_seconds(const PhaseCosts& costs, double r) {
  PhaseCosts without = costs;
  without.gar_s = 0;
  return predicted_seconds(without, r) - 2 * r * costs.alltoall.chunk(r);  // in each of the cases 2 to 4
}

std::array<std::optional<CaseMinimum>, 4> case_minima(const PhaseCosts& costs, double max_degree) {
  std::array<std::optional<CaseMinimum>, 4> minima;
  const auto offer = [&](int which, const CaseMinimum& candidate) {
    auto& least = minima[which - 1];
    if (!least || candidate.seconds < least->seconds) least = candidate;
  };
  const std::vector<double> points = breakpoints(costs, max_degree);
  for (size_t i = 0; i < points.size(); ++i) {
    // At a root the answer is no, so the point itself may belong to another case.
    const int at_point = case_of(case_conditions(costs, points[i]));
    offer(at_point, {points[i], case_seconds(at_point, costs, points[i])});
    if (i + 1 == points.size()) break;
    const int which = case_of(case_conditions(costs, (points[i] + points[i + 1]) / 2));
    offer(which, min_between(which, costs, points[i], points[i + 1]));
  }
  return minima;
}

Algorithm1Result algorithm1(const PhaseCosts& costs, int max_degree, DegreeRounding rounding) {
  require<BadInput>(max_degree >= 1, "algorithm 1: largest degree: found {}, expected >= 1", max_degree);
  Algorithm1Result result;
  result.real.seconds = std::numeric_limits<double>::infinity();
  const auto minima = case_minima(costs, max_degree);
  for (size_t i = 0; i < minima.size(); ++i)
    if (minima[i] && minima[i]->seconds < result.real.seconds) {
      result.real = *minima[i];
      result.unrounded_case = static_cast<int>(i) + 1;
    }
  std::set<int> degrees;
  if (rounding == DegreeRounding::neighbours) {
    degrees = {static_cast<int>(std::floor(result.real.degree)),
               std::min(static_cast<int>(std::ceil(result.real.degree)), max_degree)};
  } else {
    for (const auto& minimum : minima)
      if (minimum) add_powers(minimum->degree, max_degree, degrees);
  }
  result.seconds = std::numeric_limits<double>::infinity();
  for (const int degree : degrees) {
    const double seconds = predicted_seconds(costs, degree);
    if (seconds < result.seconds) {
      result.degree = degree;
      result.seconds = seconds;
      result.which_case = case_of(case_conditions(costs, degree));
    }
  }
  return result;
}

}  // namespace moe
