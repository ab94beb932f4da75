#include "moe/search/strategies.h"

#include <algorithm>
#include <array>
#include <boost/math/tools/minima.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/search/partition.h"

namespace moe {
namespace {

LayerResult exact(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  return search.tune(schedule, pricer);
}

// Returns the bytes by section 5 for one layer in the steady state: what waits when its backward begins goes beside its
// dense part as far as that hides it, then into its MoE part as far as that does, and step 2 puts more into the MoE
// part while that is cheaper than sending it on its own.
int64_t bytes_in_moe(const LayerPricer& pricer, DegreeRounding rounding) {
  const int64_t all = pricer.gradient_bytes();
  if (!pricer.has(GroupKind::dp) || all == 0) return 0;
  const int most = largest_degree(pricer);
  const PhaseCosts costs = phase_costs(pricer, Phase::backward, 0);
  const Algorithm1Result alone = algorithm1(costs, most, rounding);
  double dense = 0;
  for (const TaskKind kind : {TaskKind::mp_allgather, TaskKind::attention, TaskKind::mp_reducescatter, TaskKind::gate})
    if (group_of(Flow::sharded, kind) == GroupKind::none || pricer.has(GroupKind::mp))
      dense += pricer.dense_seconds(kind, Phase::backward);
  if (pricer.has(GroupKind::cp))
    for (const TaskKind kind : {TaskKind::keys_values, TaskKind::cp_reducescatter})
      dense += pricer.dense_seconds(kind, Phase::backward);
  PartitionLayer layer;
  layer.moe_window_s = overlappable_seconds(costs, alone.degree);
  layer.dense_window_s = dense;
  layer.seconds = [&, dense](int64_t moe_bytes, int64_t dense_bytes) {
    PhaseCosts with = costs;
    with.gar_s = pricer.slice_seconds(moe_bytes);
    return algorithm1(with, most, rounding).seconds + std::max(dense, pricer.slice_seconds(dense_bytes));
  };
  PartitionProblem problem;
  problem.layers = {layer};
  problem.waiting_bytes = all;
  problem.allreduce_seconds = [&](int64_t bytes) { return pricer.slice_seconds(bytes); };
  problem.element_bytes = bytes_of(pricer.shape().layer.dtype);
  return partition_paper(problem).layers.front().moe_bytes;
}

LayerResult by_algorithm1(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          DegreeRounding rounding) {
  const int most = largest_degree(pricer);
  const bool adaptive = schedule.gradients == GradientPolicy::adaptive;
  const int64_t bytes = adaptive ? bytes_in_moe(pricer, rounding) : 0;
  const int forward = algorithm1(phase_costs(pricer, Phase::forward, 0), most, rounding).degree;
  const int backward =
      algorithm1(phase_costs(pricer, Phase::backward, pricer.slice_seconds(bytes)), most, rounding).degree;
  return search.evaluate(schedule, pricer, with_split(schedule, forward, backward, bytes));
}

LayerResult neighbours(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  return by_algorithm1(search, schedule, pricer, DegreeRounding::neighbours);
}

LayerResult snapped(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  return by_algorithm1(search, schedule, pricer, DegreeRounding::powers_of_two);
}

// Searches degree and share of the gradients together, as one point of the unit square.
LayerResult evolution(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  LayerResult best = search.tune(schedule, pricer, {0, 1});
  const int most = largest_degree(pricer);
  const int64_t element = bytes_of(pricer.shape().layer.dtype);
  const double elements = static_cast<double>(pricer.gradient_bytes() / element);
  const bool adaptive = schedule.gradients == GradientPolicy::adaptive && pricer.has(GroupKind::dp);
  const auto decided = [&](std::span<const double> x) {
    const int degree = 1 + std::min(most - 1, static_cast<int>(x[0] * most));
    const int64_t bytes = adaptive ? element * static_cast<int64_t>(x[1] * elements) : 0;
    return with_split(schedule, best.decision.degree_forward, degree, bytes);
  };
  const auto backward = [&](std::span<const double> x) {
    return search.replay(schedule, pricer).seconds(decided(x), Phases::backward);
  };
  const Evolved found = minimise({.generations = 60}, 2, backward);
  return search.evaluate(schedule, pricer, decided(found.x));
}

}  // namespace

std::span<const LayerStrategy> layer_strategies() {
  static constexpr std::array kRows{
      LayerStrategy{"exact", "every integer degree and every split, replayed", exact},
      LayerStrategy{"algorithm1", "FSMoE's Algorithm 1 and its two steps for gradients", neighbours},
      LayerStrategy{"snapped", "as algorithm1, degrees snapped to 1, 2, 4 or 8", snapped},
      LayerStrategy{"evolution", "degree and split by differential evolution", evolution}};
  return kRows;
}

namespace {

class Evolution {
 public:
  Evolution(const DifferentialEvolution& settings, int dimensions, const Objective& objective)
      : settings_(settings), dimensions_(static_cast<size_t>(dimensions)), objective_(objective) {}

  Evolved run(const std::vector<std::vector<double>>& starts) {
    populate(starts);
    int generation = 0;
    while (generation < settings_.generations && !converged()) {
      for (size_t i = 0; i < members_.size(); ++i) challenge(i);
      ++generation;
    }
    const auto least = std::ranges::min_element(values_) - values_.begin();
    return {members_[least], values_[least], generation, evaluations_};
  }

 private:
  double uniform() { return random_uniform(settings_.seed, 0, draws_++); }
  size_t below(size_t n) { return random_bits(settings_.seed, 1, draws_++) % n; }
  double value(const std::vector<double>& x) {
    ++evaluations_;
    return objective_(x);
  }

  void populate(const std::vector<std::vector<double>>& starts) {
    members_ = starts;
    const int wanted = settings_.population > 0 ? settings_.population : std::max<int>(10 * size(dimensions_), 20);
    while (size(members_.size()) < std::max(wanted, 4)) {
      std::vector<double> x(dimensions_);
      for (double& coordinate : x) coordinate = uniform();
      members_.push_back(std::move(x));
    }
    for (const auto& x : members_) values_.push_back(value(x));
  }
  static int size(size_t n) { return static_cast<int>(n); }

  bool converged() const {
    const double n = static_cast<double>(values_.size());
    double mean = 0, squares = 0;
    for (const double v : values_) mean += v / n;
    for (const double v : values_) squares += (v - mean) * (v - mean) / n;
    return std::sqrt(squares) <= settings_.tolerance * std::abs(mean);
  }

  // Lets a mutant of three others, crossed with member i, take its place unless it is worse.
  void challenge(size_t i) {
    size_t a, b, c;
    do a = below(members_.size());
    while (a == i);
    do b = below(members_.size());
    while (b == i || b == a);
    do c = below(members_.size());
    while (c == i || c == a || c == b);
    trial_ = members_[i];
    const size_t certain = below(dimensions_);
    for (size_t d = 0; d < dimensions_; ++d) {
      if (d != certain && uniform() >= settings_.crossover) continue;
      const double base = members_[a][d];
      const double mutant = base + settings_.weight * (members_[b][d] - members_[c][d]);
      // Outside the box: anywhere between the base and the side that was crossed.
      trial_[d] = mutant < 0 ? base * uniform() : mutant > 1 ? base + (1 - base) * uniform() : mutant;
    }
    const double v = value(trial_);
    if (v > values_[i]) return;
    members_[i] = trial_;
    values_[i] = v;
  }

  const DifferentialEvolution& settings_;
  size_t dimensions_;
  const Objective& objective_;
  std::vector<std::vector<double>> members_;
  std::vector<double> values_, trial_;
  int64_t evaluations_ = 0;
  uint64_t draws_ = 0;
};

}  // namespace

Evolved minimise(const DifferentialEvolution& settings, int dimensions, const Objective& objective,
                 const std::vector<std::vector<double>>& starts) {
  require<BadInput>(dimensions >= 0 && settings.population >= 0 && settings.generations >= 0 && settings.weight > 0 &&
                        settings.crossover >= 0 && settings.crossover <= 1,
                    "differential evolution: found {} dimensions, population {}, {} generations, weight {}, crossover "
                    "{}, expected none negative, weight > 0, crossover at most 1",
                    dimensions, settings.population, settings.generations, settings.weight, settings.crossover);
  for (const auto& start : starts) require_equal(start.size(), static_cast<size_t>(dimensions), "length of a start");
  if (dimensions == 0) return {{}, objective({}), 0, 1};
  return Evolution(settings, dimensions, objective).run(starts);
}

namespace {

// A difference of times as a function of r: constant + linear r + inverse / r. All seven questions ask whether
// one of these is above 0.
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

Difference once(const ChunkTime& line) { return {line.alpha_s, 0, line.whole_s}; }
Difference times_r(const ChunkTime& line) { return {line.whole_s, line.alpha_s, 0}; }
Difference times_r_less_1(const ChunkTime& line) { return times_r(line) - once(line); }

std::array<Difference, 7> differences(const PhaseCosts& c) {
  const Difference gar{c.gar_s, 0, 0};
  const Difference both = once(c.allgather) + once(c.reducescatter);
  const Difference hidden = times_r_less_1(c.alltoall) + times_r_less_1(c.alltoall);
  const Difference exposed = times_r(c.expert) - hidden + both;
  return {once(c.alltoall) - once(c.allgather),
          times_r(c.expert) - hidden,
          times_r(c.expert) - times_r_less_1(c.allgather) - times_r_less_1(c.reducescatter),
          gar - both,
          gar - exposed,
          gar - (times_r(c.allgather) + times_r(c.reducescatter) - hidden),
          gar - exposed};
}

// Returns where an answer may change, ascending, with both ends of the range: r times a difference is a quadratic.
std::vector<double> breakpoints(const PhaseCosts& costs, double most_degree) {
  std::set<double> points{1, most_degree};
  for (const Difference& d : differences(costs)) {
    if (d.constant == 0 && d.linear == 0 && d.inverse == 0) continue;  // the same answer everywhere
    const auto roots = boost::math::tools::quadratic_roots(d.linear, d.constant, d.inverse);
    for (const double root : {roots.first, roots.second})
      if (root > 1 && root < most_degree) points.insert(root);  // false of NaN: no root
  }
  return {points.begin(), points.end()};
}

CaseMinimum least_between(int which, const PhaseCosts& costs, double begin, double end) {
  const auto seconds = [&](double r) { return case_seconds(which, costs, r); };
  constexpr int kBits = std::numeric_limits<double>::digits / 2;  // the most that a minimum's place can be known to
  const auto [r, least] = boost::math::tools::brent_find_minima(seconds, begin, end, kBits);
  CaseMinimum best{begin, seconds(begin)};
  for (const CaseMinimum& candidate : {CaseMinimum{r, least}, CaseMinimum{end, seconds(end)}})
    if (candidate.seconds < best.seconds) best = candidate;
  return best;
}

// Adds the largest of {1, 2, 4, 8} not above and the smallest not below, as far as `most_degree` allows.
void add_powers(double degree, int most_degree, std::set<int>& degrees) {
  int below = 1, above = 0;
  for (const int power : {8, 4, 2, 1})
    if (power <= most_degree && power >= degree) above = power;
  for (const int power : {1, 2, 4, 8})
    if (power <= most_degree && power <= degree) below = power;
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

Answers questions(const PhaseCosts& costs, double r) {
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

int case_of(const Answers& answers) {
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
  return case_seconds(case_of(questions(costs, r)), costs, r);
}

double overlappable_seconds(const PhaseCosts& costs, double r) {
  PhaseCosts without = costs;
  without.gar_s = 0;
  return predicted_seconds(without, r) - 2 * r * costs.alltoall.chunk(r);  // in each of the cases 2 to 4
}

std::array<std::optional<CaseMinimum>, 4> case_minima(const PhaseCosts& costs, double most_degree) {
  std::array<std::optional<CaseMinimum>, 4> minima;
  const auto offer = [&](int which, const CaseMinimum& candidate) {
    auto& least = minima[which - 1];
    if (!least || candidate.seconds < least->seconds) least = candidate;
  };
  const std::vector<double> points = breakpoints(costs, most_degree);
  for (size_t i = 0; i < points.size(); ++i) {
    const int at_point = case_of(questions(costs, points[i]));  // equality counts as no: it may be a case of its own
    offer(at_point, {points[i], case_seconds(at_point, costs, points[i])});
    if (i + 1 == points.size()) break;
    const int which = case_of(questions(costs, (points[i] + points[i + 1]) / 2));
    offer(which, least_between(which, costs, points[i], points[i + 1]));
  }
  return minima;
}

Algorithm1Result algorithm1(const PhaseCosts& costs, int most_degree, DegreeRounding rounding) {
  require<BadInput>(most_degree >= 1, "algorithm 1: largest degree: found {}, expected >= 1", most_degree);
  Algorithm1Result result;
  result.real.seconds = std::numeric_limits<double>::infinity();
  const auto minima = case_minima(costs, most_degree);
  for (size_t i = 0; i < minima.size(); ++i)
    if (minima[i] && minima[i]->seconds < result.real.seconds) {
      result.real = *minima[i];
      result.real_case = static_cast<int>(i) + 1;
    }
  std::set<int> degrees;
  if (rounding == DegreeRounding::neighbours) {
    degrees = {static_cast<int>(std::floor(result.real.degree)),
               std::min(static_cast<int>(std::ceil(result.real.degree)), most_degree)};
  } else {
    for (const auto& minimum : minima)
      if (minimum) add_powers(minimum->degree, most_degree, degrees);
  }
  result.seconds = std::numeric_limits<double>::infinity();
  for (const int degree : degrees) {
    const double seconds = predicted_seconds(costs, degree);
    if (seconds < result.seconds) {
      result.degree = degree;
      result.seconds = seconds;
      result.which_case = case_of(questions(costs, degree));
    }
  }
  return result;
}

}  // namespace moe
