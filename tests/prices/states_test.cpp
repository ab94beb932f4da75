// What a rank does not keep, in prices: attention scores that are computed again, and what no plan sends.
#include <gtest/gtest.h>

#include "moe/prices/pricer.h"
#include "tests/prices/random_layer.h"

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

// A row of the backward that computes its scores again prices it alone, whatever the other row says.
TEST(States, RowsOfTheBackwardThatComputesScoresAgainSayAll) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto [profile, shape, text] = random_layer(seed);
    shape.parallel.recompute = Recompute::selective;
    const auto backward_s = [&, &known = profile, &layer = shape] {
      return LayerPricer(known, layer).dense_seconds(TaskKind::attention, Phase::backward) - known.task_overhead_s;
    };
    const double flops = whole_work(TaskKind::attention, Phase::backward, shape, Flow::sharded).flops;
    std::erase_if(profile.modules, [](const ModuleRow& row) { return row.name.starts_with("attention"); });
    profile.modules.push_back({.name = "attention:selective",
                               .phase = Phase::backward,
                               .seq = {},
                               .alpha_s = 2e-3,
                               .beta_s_per_flop = 3e-12});
    EXPECT_DOUBLE_EQ(backward_s(), 2e-3 + 3e-12 * flops) << text;
    TaskRow row{.name = "attention", .phase = Phase::backward, .dtype = shape.layer.dtype};
    row.seconds_per_term[Term::call] = 5e-3;
    profile.tasks.push_back(row);
    EXPECT_GT(backward_s(), 5e-3) << "measured with its scores kept: they are added; " << text;
    row.name = "attention:selective";
    profile.tasks.push_back(row);
    EXPECT_DOUBLE_EQ(backward_s(), 5e-3) << text;
    shape.parallel.recompute = Recompute::none;
    profile.tasks.back().seconds_per_term[Term::call] = 7e-3;
    EXPECT_DOUBLE_EQ(backward_s(), 5e-3) << "not its row; " << text;
  }
}

TEST(States, RefuseWhatPlansDoNotSend) {
  auto [profile, shape, text] = random_layer(1);
  shape.parallel.zero = 1;
  EXPECT_NO_THROW(LayerPricer(profile, shape));
  shape.parallel.zero = 2;
  EXPECT_THROW(LayerPricer(profile, shape), BadInput);
}

}  // namespace
}  // namespace moe
