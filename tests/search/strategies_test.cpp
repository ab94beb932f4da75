// FSMoE's own strategies: never better than the exact search, and what they lose; the search under contention.
#include "moe/search/strategies.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/shape/grid.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using random_layer::random_layer;
using random_layer::RandomLayer;

TEST(Strategies, NothingBeatsTheExactSearch) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const char* name : {"fsmoe", "fsmoe-no-iio", "fsmoe-no-partition"}) {
      const Schedule& schedule = find_schedule(name);
      const double exact = search.tune(schedule, pricer).total_s();
      for (const LayerStrategy& strategy : layer_strategies())
        ASSERT_GE(strategy.tune(search, schedule, pricer).total_s(), exact * (1 - 1e-9))
            << strategy.name << " of " << name << ", " << layer.text;
    }
  }
}

TEST(Strategies, OnFsmoesGridsLoseLittleButSnapping) {
  LayerSearch search;
  for (const char* testbed : {"a", "b"}) {
    const Profile profile = find_profile(fmt::format("testbed-{}", testbed));
    const Grid grid = find_grid(fmt::format("fsmoe-{}", testbed));
    for (const LayerStrategy& strategy : layer_strategies()) {
      double mean = 0, worst = 0;
      int layers = 0;
      for (size_t i = 0; i < grid.layers.size(); i += 18, ++layers) {
        const ParallelShape parallel{.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node};
        const LayerPricer pricer(profile, complete(grid.layers[i].shape, parallel, grid.rounding));
        const Schedule& fsmoe = find_schedule("fsmoe");
        const double regret = strategy.tune(search, fsmoe, pricer).total_s() / search.tune(fsmoe, pricer).total_s() - 1;
        ASSERT_GE(regret, -1e-9) << strategy.name << " on " << grid.layers[i].name;
        mean += regret;
        worst = std::max(worst, regret);
      }
      fmt::print("testbed-{} {:<10}: {:.3f} % above exact in the mean, {:.3f} % at worst, {} layers\n", testbed,
                 strategy.name, 100 * mean / layers, 100 * worst, layers);
    }
  }
}

TEST(Contention, OnlySlowsAndIsSearchedWithIt) {
  LayerSearch search;
  int slowed = 0, moved = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RandomLayer layer = random_layer(seed);
    const LayerPricer free(layer.profile, layer.shape);
    Profile contended = layer.profile;
    contended.contention.intra_by_inter = 1.4;
    contended.contention.inter_by_intra = 1.2;
    contended.contention.compute_by_inter = 1.05;
    const LayerPricer pricer(contended, layer.shape);
    for (const char* name : {"ds-moe", "tutel", "fsmoe", "fsmoe-no-partition", "lina"}) {
      const Schedule& schedule = find_schedule(name);
      const LayerResult alone = search.tune(schedule, free), found = search.tune(schedule, pricer);
      // Decided for free lanes and replayed with contention: no better than what was searched with it.
      const LayerResult kept = search.evaluate(schedule, pricer, alone.decision);
      const double least = sends_pieces(schedule) ? 1.02 : 1 + 1e-9;  // pieces go where a policy puts them
      ASSERT_LE(found.total_s(), kept.total_s() * least) << name << ", " << layer.text;
      ASSERT_GE(found.total_s(), found.bound.total_s() * (1 - 1e-9)) << name << ", " << layer.text;
      slowed += found.total_s() > alone.total_s() * (1 + 1e-9);
      moved += found.decision.degree_forward != alone.decision.degree_forward;
    }
  }
  fmt::print("contention slows {} of 300 searches, and changes r_f in {}\n", slowed, moved);
  EXPECT_GT(slowed, 30);
}

}  // namespace
}  // namespace moe
