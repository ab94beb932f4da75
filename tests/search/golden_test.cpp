// The authors' published optimiser (FSMoE): B4 L1024 M4096 H14336, Mixtral experts, k f = 2.4, MP = ESP = 8.
#include <gtest/gtest.h>

#include "moe/search/layer_search.h"

namespace moe {
namespace {

LayerCase golden_case() {
  LayerShape layer{.batch = 4, .seq = 1024, .model_dim = 4096, .hidden = 14336, .heads = 32, .experts = 4, .top_k = 2};
  layer.capacity_factor = 1.2;
  layer.ffn = Ffn::mixtral;
  return complete(layer, {.nodes = 4, .ranks_per_node = 8, .mp = 8, .ep = 4, .esp = 8}, Rounding::exact);
}

TEST(Golden, ForwardOfTheMoePartByDegree) {
  const Profile profile = find_profile("fsmoe-optimiser");
  const LayerPricer pricer(profile, golden_case());
  LayerSearch search;
  const std::pair<int, double> expected_ms[] = {{1, 86.2269}, {2, 64.1200}, {4, 59.7008}, {8, 57.8623}, {12, 57.5793}};
  for (const auto& [degree, ms] : expected_ms) {
    const LayerResult result = search.evaluate(find_schedule("fsmoe"), pricer, {degree, 1, 0});
    EXPECT_NEAR(result.moe_forward_s * 1e3, ms, 5e-5) << "degree " << degree;
  }
}

TEST(Golden, TheIntegerOptimumIsTwelve) {
  const Profile profile = find_profile("fsmoe-optimiser");
  const LayerPricer pricer(profile, golden_case());
  LayerSearch search;
  const LayerResult best = search.tune(find_schedule("fsmoe"), pricer);
  EXPECT_EQ(best.decision.degree_forward, 12);
  EXPECT_NEAR(best.moe_forward_s * 1e3, 57.5793, 5e-5);
}

}  // namespace
}  // namespace moe
