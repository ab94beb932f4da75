#include "moe/search/differential_evolution.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe {
namespace {

class Evolution {
 public:
  Evolution(const DifferentialEvolution& settings, int dimensions, const Objective& objective)
      : settings_(settings), dimensions_(static_cast<size_t>(dimensions)), objective_(objective) {}

  EvolutionResult run(const std::vector<std::vector<double>>& starts) {
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

  // Crosses member i with a mutant of three other members, and replaces it by the result unless that is worse.
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
      // Outside the box: take a random point between the base and the violated limit.
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

EvolutionResult minimise(const DifferentialEvolution& settings, int dimensions, const Objective& objective,
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

}  // namespace moe
