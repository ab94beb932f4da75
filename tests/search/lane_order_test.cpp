// The searched order of AllGathers and ReduceScatters against every order there is, and what it gains on FSMoE's
// layers.
#include "moe/search/detail/lane_order.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>

#include "moe/base/random.h"
#include "moe/search/layer_search.h"
#include "moe/shape/grid.h"

namespace moe {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  double seconds(double most) { return most * random_uniform(seed_, 1, index_++); }
  std::vector<double> chunks(size_t degree, bool equal, double most) {
    std::vector<double> all(degree, seconds(most));
    for (double& chunk : all) chunk = equal ? all.front() : seconds(most);
    return all;
  }
  search::ChunkTimes times(size_t degree) {
    const bool equal = random_bits(seed_, 2, index_++) % 2 == 0;
    search::ChunkTimes t{chunks(degree, equal, 1),          chunks(degree, equal, seconds(3)),
                         chunks(degree, equal, seconds(3)), chunks(degree, equal, seconds(3)),
                         chunks(degree, equal, 1),          0};
    if (random_bits(seed_, 3, index_++) % 2 == 0) t.gradients = seconds(4);
    if (random_bits(seed_, 4, 0) % 3 == 0) t.shared = seconds(4);
    if (t.shared > 0 && random_bits(seed_, 4, 1) % 2 == 0) {
      t.shared_allgather = seconds(3);
      t.shared_reducescatter = seconds(3);
    }
    return t;
  }

 private:
  uint64_t seed_, index_ = 0;
};

// Clockwork of three queues, written from the schedule's definition.
double replayed(const search::ChunkTimes& t, const LaneOrder& order) {
  const size_t r = t.degree();
  std::vector<double> gathered(r), computed(r), scattered(r), arrived(r);
  double inter = 0, intra = t.shared_allgather, compute = intra + t.shared;
  const double shared = compute;
  for (size_t c = 0; c < r; ++c) arrived[c] = inter += t.dispatch[c];
  inter += t.gradients;
  size_t g = 0, s = 0;
  for (const char task : order)
    if (task == 'G') {
      gathered[g] = intra = std::max(intra, arrived[g]) + t.allgather[g];
      computed[g] = compute = std::max(compute, gathered[g]) + t.expert[g];
      ++g;
    } else {
      scattered[s] = intra = std::max(intra, computed[s]) + t.reducescatter[s];
      inter = std::max(inter, scattered[s]) + t.combine[s];
      ++s;
    }
  return std::max(inter, std::max(intra, shared) + t.shared_reducescatter);
}

double least_of_all(const search::ChunkTimes& t, LaneOrder& order, size_t gathers, size_t scatters) {
  if (order.size() == 2 * t.degree()) return replayed(t, order);
  double least = std::numeric_limits<double>::infinity();
  const auto with = [&](char task, size_t g, size_t s) {
    order.push_back(task);
    least = std::min(least, least_of_all(t, order, g, s));
    order.pop_back();
  };
  if (gathers < t.degree()) with('G', gathers + 1, scatters);
  if (scatters < gathers) with('S', gathers, scatters + 1);
  return least;
}

TEST(LaneOrder, IsTheBestOfAllInterleavings) {
  int better = 0, draws = 0;
  for (size_t r = 1; r <= 5; ++r)
    for (uint64_t seed = 1; seed <= 4000; ++seed) {
      const search::ChunkTimes t = Draw(seed * 10 + r).times(r);
      const search::OrderChoice choice = search::best_lane_order(t);
      LaneOrder order;
      const double least = least_of_all(t, order, 0, 0);
      ASSERT_TRUE(choice.exact);
      ASSERT_NEAR(choice.seconds, least, 1e-9 * least) << "r " << r << " seed " << seed << " " << choice.order;
      ASSERT_NEAR(replayed(t, choice.order), choice.seconds, 1e-12 * least) << "r " << r << " seed " << seed;
      ASSERT_NEAR(search::order_seconds(t, {}), replayed(t, LaneOrder(r, 'G') + LaneOrder(r, 'S')), 1e-12 * least);
      better += choice.seconds < search::order_seconds(t, {}) * (1 - 1e-9);
      ++draws;
    }
  fmt::print("{} of {} draws have an order that is better than FSMoE's\n", better, draws);
  EXPECT_GT(better, draws / 10);
}

TEST(LaneOrder, IsExactToDegree12) {
  for (const size_t r : {8u, 12u})
    for (uint64_t seed = 1; seed <= 300; ++seed)
      EXPECT_TRUE(search::best_lane_order(Draw(seed * 100 + r).times(r)).exact) << "r " << r << " seed " << seed;
}

TEST(LaneOrder, InterleavedIsNeverSlowerThanFsmoeOnItsGrids) {
  LayerSearch search;
  for (const char* testbed : {"a", "b"}) {
    const Profile profile = find_profile(fmt::format("testbed-{}", testbed));
    const Grid grid = find_grid(fmt::format("fsmoe-{}", testbed));
    double forward = 0, moe = 0, total = 0, most = 0;
    int layers = 0, exact = 0;
    for (size_t i = 0; i < grid.layers.size(); i += 3) {  // heads change nothing
      ParallelShape parallel;
      parallel.nodes = profile.nodes;
      parallel.ranks_per_node = profile.ranks_per_node;
      const LayerPricer pricer(profile, complete(grid.layers[i].shape, parallel, grid.rounding));
      const LayerResult plain = search.tune(find_schedule("fsmoe"), pricer);
      const LayerResult found = search.tune(find_schedule("fsmoe-interleaved"), pricer);
      ASSERT_LE(found.forward_s, plain.forward_s * (1 + 1e-12)) << grid.layers[i].name;
      ASSERT_LE(found.total_s(), plain.total_s() * (1 + 1e-12)) << grid.layers[i].name;
      forward += plain.forward_s / found.forward_s - 1;
      moe += plain.moe_forward_s / found.moe_forward_s - 1;
      most = std::max(most, plain.moe_forward_s / found.moe_forward_s - 1);
      total += plain.total_s() / found.total_s() - 1;
      exact += found.exact_order;
      ++layers;
    }
    fmt::print(
        "testbed-{}: interleaved gains {:.2f} % of the forward's MoE part (most {:.2f} %), {:.2f} % of the forward, "
        "{:.2f} % in all; order exact in {} of {} layers\n",
        testbed, 100 * moe / layers, 100 * most, 100 * forward / layers, 100 * total / layers, exact, layers);
    EXPECT_GE(total, 0);
    if (*testbed == 'a') {
      EXPECT_GT(moe, 0.02 * layers) << "FSMoE's LayerCase 3 is there";
    }
  }
}

}  // namespace
}  // namespace moe
