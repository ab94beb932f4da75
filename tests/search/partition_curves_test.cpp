// Gradients of layers whose AllReduce is priced by a measured curve, partitioned as by trying every element.
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <set>

#include "moe/base/random.h"
#include "moe/search/detail/model_partition.h"
#include "tests/prices/profile_parts.h"
#include "tests/search/partition_random.h"

namespace moe {
namespace {

constexpr int64_t kElement = 4;

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_bits(seed_, 1, index_++) % static_cast<uint64_t>(n)); }
  double up_to(double most) { return most * random_uniform(seed_, 2, index_++); }

 private:
  uint64_t seed_, index_ = 0;
};

Points rising_curve(Draws& draws) {
  std::set<int64_t> sizes;
  while (sizes.size() < 4) sizes.insert(6 + draws.below(90));
  Points points;
  double seconds = 0.2 + draws.up_to(1);
  for (const int64_t size : sizes) {
    points.push_back({static_cast<double>(size), seconds});
    seconds += draws.up_to(2);
  }
  return points;
}

// Backwards whose MoE part and dense part follow each other, as SplitPaths of a sum of two windows.
std::vector<search::SplitPaths> random_paths(Draws& draws) {
  std::vector<search::SplitPaths> by_degree;
  const double dense_s = draws.up_to(4), beside_dense_s = dense_s * draws.up_to(1);
  for (int64_t degrees = 1 + draws.below(3); degrees > 0; --degrees) {
    const double moe_s = draws.up_to(4), beside_moe_s = moe_s * draws.up_to(1);
    by_degree.push_back(
        {moe_s + dense_s, beside_moe_s + dense_s, moe_s + beside_dense_s, beside_moe_s + beside_dense_s});
  }
  return by_degree;
}

// Backwards whose two parts share work, so that the best split of some bytes is at no bend of either slice.
std::vector<search::SplitPaths> entangled_paths(Draws& draws) {
  std::vector<search::SplitPaths> by_degree;
  for (int64_t degrees = 1 + draws.below(3); degrees > 0; --degrees) {
    const double neither = 1 + draws.up_to(6), first = draws.up_to(neither), second = draws.up_to(neither);
    by_degree.push_back({neither, first, second, draws.up_to(std::min(first, second))});
  }
  return by_degree;
}

struct CurvedModel {
  explicit CurvedModel(uint64_t seed, int layers, int64_t most_elements) : draws(seed) {
    row_of(profile, Op::allreduce).points = rising_curve(draws);
    by_degree = seed % 2 == 0 ? random_paths(draws) : entangled_paths(draws);
    problem = search::partition_problem(find_schedule(draws.below(3) == 0 ? "tutel-improved" : "fsmoe"), pricer, layers,
                                        by_degree);
    for (PartitionLayer& layer : problem.layers) {
      layer.made_bytes = kElement * (1 + draws.below(most_elements));
    }
  }
  CurvedModel(const CurvedModel&) = delete;
  CurvedModel& operator=(const CurvedModel&) = delete;

  Draws draws;
  Profile profile = small_profile();
  LayerCase shape = small_case();
  LayerPricer pricer{profile, shape};
  std::vector<search::SplitPaths> by_degree;
  PartitionProblem problem;
};

TEST(PartitionCurves, ExactIsTheLeastOfAllOnSmallModels) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const CurvedModel model(seed, 3, 9);
    ASSERT_TRUE(std::ranges::all_of(model.problem.layers, &PartitionLayer::breakpoints_known)) << seed;
    const double least = partition_random::least_of_all(model.problem, 0, 0);
    const Partition exact = partition_exact(model.problem, {.grain_bytes = kElement});
    check_partition(model.problem, exact);
    EXPECT_NEAR(exact.seconds, least, 1e-12 * least) << "seed " << seed;
  }
}

// What knows the bends tries far fewer splits than what tries every grain of either slice, and finds the same.
TEST(PartitionCurves, BendsFindWhatEveryGrainFinds) {
  int64_t by_bends = 0, by_grains = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const CurvedModel model(seed, 2 + static_cast<int>(seed % 9), 60);
    PartitionProblem unknown = model.problem;
    for (PartitionLayer& layer : unknown.layers) layer.breakpoints_known = false;
    const Partition found = partition_exact(model.problem, {.grain_bytes = kElement});
    const Partition tried = partition_exact(unknown, {.grain_bytes = kElement});
    EXPECT_NEAR(found.seconds, tried.seconds, 1e-12 * tried.seconds) << "seed " << seed;
    by_bends += found.evaluations;
    by_grains += tried.evaluations;
  }
  EXPECT_LT(10 * by_bends, 9 * by_grains);
}

}  // namespace
}  // namespace moe
