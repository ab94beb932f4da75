// Differential evolution on functions whose least value is known.
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numbers>

#include "moe/base/check.h"
#include "moe/search/differential_evolution.h"

namespace moe {
namespace {

// Least at (0.3, 0.3, ...): 1; with as many other valleys as there are waves.
double rastrigin(std::span<const double> x, double waves) {
  double value = 1;
  for (const double v : x) {
    const double z = 2 * waves * (v - 0.3);
    value += z * z - 10 * std::cos(2 * std::numbers::pi * z) + 10;
  }
  return value;
}

// A bent valley; least at (1/3, 1/3, ...): 1.
double rosenbrock(std::span<const double> x) {
  double value = 1;
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    const double a = 3 * x[i], b = 3 * x[i + 1];
    value += 100 * (b - a * a) * (b - a * a) + (1 - a) * (1 - a);
  }
  return value;
}

TEST(DifferentialEvolution, FindsTheLeastAmongManyValleys) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto found = minimise({.population = 100, .generations = 2000, .seed = seed, .tolerance = 1e-12}, 5,
                                [](std::span<const double> x) { return rastrigin(x, 3); });
    EXPECT_NEAR(found.value, 1, 1e-6) << "seed " << seed;
    for (const double v : found.x) EXPECT_NEAR(v, 0.3, 1e-4) << "seed " << seed;
  }
}

TEST(DifferentialEvolution, FollowsABentValley) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto found = minimise({.generations = 3000, .seed = seed, .tolerance = 1e-12}, 4,
                                [](std::span<const double> x) { return rosenbrock(x); });
    EXPECT_NEAR(found.value, 1, 1e-6) << "seed " << seed;
  }
}

TEST(DifferentialEvolution, StaysInTheBoxAndFindsItsCorner) {
  const auto sum = [](std::span<const double> x) {
    double value = 10;
    for (const double v : x) {
      EXPECT_GE(v, 0);
      EXPECT_LE(v, 1);
      value -= v;
    }
    return value;
  };
  EXPECT_NEAR(minimise({.weight = 1.5}, 6, sum).value, 4, 1e-3);
}

TEST(DifferentialEvolution, TheSameSeedGivesTheSameAndIsNeverWorseThanAStart) {
  const auto bumpy = [](std::span<const double> x) { return rastrigin(x, 20); };
  const DifferentialEvolution settings{.generations = 5, .seed = 3};
  const auto once = minimise(settings, 8, bumpy), again = minimise(settings, 8, bumpy);
  EXPECT_EQ(once.x, again.x);
  EXPECT_EQ(once.evaluations, 80 + 5 * 80) << "10 members a dimension, once a generation";
  EXPECT_NE(once.x, minimise({.generations = 5, .seed = 4}, 8, bumpy).x);
  const std::vector<double> start(8, 0.3);  // the least itself
  EXPECT_EQ(minimise(settings, 8, bumpy, {start}).x, start);
}

TEST(DifferentialEvolution, EndsOnceAllMembersAgree) {
  const auto found = minimise({}, 3, [](std::span<const double>) { return 2.0; });
  EXPECT_EQ(found.generations, 0);
  EXPECT_EQ(found.value, 2.0);
  const auto nothing = minimise({}, 0, [](std::span<const double> x) { return 7.0 + static_cast<double>(x.size()); });
  EXPECT_EQ(nothing.value, 7.0);
  EXPECT_EQ(nothing.evaluations, 1);
}

TEST(DifferentialEvolution, RefusesSettingsThatMakeNoSense) {
  const auto any = [](std::span<const double>) { return 0.0; };
  EXPECT_THROW(minimise({.population = -1}, 2, any), BadInput);
  EXPECT_THROW(minimise({.weight = 0}, 2, any), BadInput);
  EXPECT_THROW(minimise({.crossover = 1.5}, 2, any), BadInput);
  EXPECT_THROW(minimise({}, 2, any, {{0.5}}), WrongResult);
}

}  // namespace
}  // namespace moe
