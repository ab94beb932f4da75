#pragma once
// Differential evolution, rand/1/bin (Storn and Price, Journal of Global Optimization 11, 1997), which FSMoE names for
// its step 2 (section 5.3).
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace moe {

/// The same seed gives the same result on every machine.
struct DifferentialEvolution {
  int population = 0;      // 0: 10 a dimension, at least 20; never fewer than 4
  int generations = 1000;  // at most
  double weight = 0.6;     // F, of the difference of two members that is added to a third
  double crossover = 0.9;  // CR, the chance that a coordinate is taken from that sum
  uint64_t seed = 1;
  double tolerance = 1e-7;  // stops once the members' values spread (standard deviation) by no more than this share
};

struct Evolved {
  std::vector<double> x;
  double value = 0;
  int generations = 0;
  int64_t evaluations = 0;
};

using Objective = std::function<double(std::span<const double>)>;

/// Returns the least of `objective` found in the box [0, 1]^dimensions; `starts` are members of the first population
/// (the rest is drawn), so that the result is never worse than any of them. A dimension of 0 evaluates the empty vector
/// once.
Evolved minimise(const DifferentialEvolution& settings, int dimensions, const Objective& objective,
                 const std::vector<std::vector<double>>& starts = {});

}  // namespace moe
