// What a rank does not keep, in prices: attention scores that are computed again, and what no plan sends.
#include <gtest/gtest.h>

#include "moe/cost/pricer.h"
#include "tests/cost/random_layer.h"

namespace moe {
namespace {

using random_layer::random_layer;

constexpr uint64_t kLayers = 300;

TEST(States, ScoresComputedAgainTakeTheirShareOfTheForward) {
  int among = 0;  // layers whose scores are neither next to nothing nor next to all
  for (uint64_t seed = 0; seed < kLayers; ++seed) {
    const auto [profile, keeps, text] = random_layer(seed);
    LayerCase again = keeps;
    again.parallel.recompute = Recompute::selective;
    const LayerPricer keeping(profile, keeps), computing(profile, again);
    const auto seconds = [](const LayerPricer& pricer, TaskKind kind, Phase phase) {
      return pricer.dense_seconds(kind, phase) - pricer.profile().task_overhead_s;
    };
    // Q K^T and its product with V: a multiply-add each for a query, a key and a number of the rank's most heads.
    const LayerShape& l = keeps.layer;
    const int64_t most = (l.heads + keeps.parallel.mp - 1) / keeps.parallel.mp;
    const double scores = 4.0 * static_cast<double>(l.batch * l.seq * l.seq * most * (l.model_dim / l.heads));
    const double share = scores / attention_flops(keeps),
                 forward = seconds(keeping, TaskKind::attention, Phase::forward);
    among += share > 0.01 && share < 0.99 ? 1 : 0;
    EXPECT_EQ(seconds(computing, TaskKind::attention, Phase::forward), forward) << text;
    EXPECT_NEAR(seconds(computing, TaskKind::attention, Phase::backward),
                seconds(keeping, TaskKind::attention, Phase::backward) + share * forward, 1e-12 * (1 + forward))
        << text;
    EXPECT_EQ(seconds(computing, TaskKind::gate, Phase::backward), seconds(keeping, TaskKind::gate, Phase::backward));
  }
  EXPECT_GT(among, static_cast<int>(kLayers / 4));
}

TEST(States, RefuseWhatPlansDoNotSend) {
  auto [profile, shape, text] = random_layer(1);
  shape.parallel.zero = 1;
  EXPECT_NO_THROW(LayerPricer(profile, shape));
  shape.parallel.zero = 2;
  EXPECT_THROW(LayerPricer(profile, shape), BadInput);
  shape.parallel.zero = 0;
  shape.parallel.recompute = Recompute::full;
  EXPECT_THROW(LayerPricer(profile, shape), BadInput);
}

}  // namespace
}  // namespace moe
