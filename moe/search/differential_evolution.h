#pragma once
// Differential evolution, rand/1/bin (Storn and Price, Journal of Global Optimization 11, 1997), which FSMoE uses for
// its step 2 (section 5.3).
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace moe {

/// The settings. The same seed gives the same result on every machine.
struct DifferentialEvolution {
  int population = 0;      // 0: 10 per dimension, at least 20; never fewer than 4
  int generations = 1000;  // limit of generations
  double weight = 0.6;     // F, factor of the difference of two members that is added to a third
  double crossover = 0.9;  // CR, probability that a coordinate is taken from that sum
  uint64_t seed = 1;
  /// Stops once the standard deviation of the members' values is at most this share of their mean.
  double tolerance = 1e-7;
};

struct EvolutionResult {
  std::vector<double> x;
  double value = 0;
  int generations = 0;
  int64_t evaluations = 0;
};

using Objective = std::function<double(std::span<const double>)>;

/// Returns the smallest value of `objective` that was found in the box [0, 1]^dimensions. `starts` belong to the first
/// population, so the result is never worse than any of them; the other members are random. With 0 dimensions, the
/// empty vector is evaluated once.
EvolutionResult minimise(const DifferentialEvolution& settings, int dimensions, const Objective& objective,
                         const std::vector<std::vector<double>>& starts = {});

}  // namespace moe
