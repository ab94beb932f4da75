#include <gtest/gtest.h>

#include "moe/layer/moe_layer.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

LayerCase hot_case() {
  LayerShape layer;
  layer.batch = 2;
  layer.seq = 16;
  layer.model_dim = 16;
  layer.hidden = 16;
  layer.heads = 4;
  layer.experts = 4;
  layer.top_k = 2;
  layer.capacity_factor = 1;
  ParallelShape parallel;
  parallel.nodes = parallel.ranks_per_node = 2;
  return complete(layer, parallel, Rounding::ragged);
}

RoutingLoad load_under(const LayerCase& shape, const std::string& workload, const std::string& schedule = "tutel") {
  const Plan plan = plan_for(shape, schedule, 1, 1);
  LocalLayers layers(shape, {}, plan.structure->flow);
  for (MoeLayer* rank : layers.ranks()) rank->preset(Workload(workload));
  layers.pass(plan, 1);
  return load_of(layers.ranks());
}

TEST(RoutingLoad, BalancedFillsEveryRow) {
  const RoutingLoad load = load_under(hot_case(), "balanced");
  EXPECT_EQ(load.pairs, 2 * 2 * 16 * 2);  // two MP groups of B L tokens, k = 2
  EXPECT_EQ(load.dropped, 0);
  EXPECT_EQ(load.imbalance, 1);
  EXPECT_EQ(load.padding, 0);
}

// A rank's 16 tokens want expert 0 first; it takes 8 rows (ceil(k f N / E)), of which no other has more.
TEST(RoutingLoad, AHotExpertDropsAndLeavesRowsEmpty) {
  for (const std::string schedule : {"tutel", "ds-moe-replicated", "monta-o2"}) {
    const RoutingLoad load = load_under(hot_case(), "hot:0", schedule);
    EXPECT_EQ(load.max_load, 64) << schedule;
    EXPECT_EQ(load.mean_load, 32);
    EXPECT_EQ(load.imbalance, 2);
    EXPECT_GE(load.dropped, 4 * 8) << schedule;
    EXPECT_NEAR(load.padding, static_cast<double>(load.dropped) / 128, 1e-12);  // as many rows as pairs
    EXPECT_EQ(load.drop_rate, static_cast<double>(load.dropped) / 128);
  }
}

TEST(RoutingLoad, DroplessSendsWhatThereIsOrPads) {
  LayerCase shape = hot_case();
  shape.layer.capacity_factor.reset();
  EXPECT_EQ(load_under(shape, "hot:0").dropped, 0);
  EXPECT_EQ(load_under(shape, "hot:0").padding, 0);
  shape.rounding = Rounding::tutel;  // each expert gets as many rows as the hot one
  EXPECT_NEAR(load_under(shape, "hot:0").padding, 0.5, 1e-12);
}

}  // namespace
}  // namespace moe
