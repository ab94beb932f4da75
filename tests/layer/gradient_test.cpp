// The proof: outputs, dX and every dW of the layer under real plans, on real ranks, against the autograd reference; for
// every schedule, r_f and r_b in 1 .. 5, 1 to 8 ranks, EP x ESP up to 4 x 2; with balanced and with skewed routing that
// drops tokens, leaves experts idle and has T_rank smaller than r.
#include <gtest/gtest.h>
#include <iostream>

#include "tests/layer/local_layers.h"

namespace moe {
namespace {

struct Spread {
  int ranks, mp, ep, esp;
};

std::ostream& operator<<(std::ostream& out, const Spread& s) {
  return out << s.ranks << "ranks_mp" << s.mp << "_ep" << s.ep << "_esp" << s.esp;
}

Case case_of(const Spread& s, int64_t batch, double factor, DType dtype) {
  LayerShape layer{.batch = batch, .seq = 8, .model_dim = 20, .hidden = 12, .heads = 10, .experts = 8, .top_k = 2};
  layer.capacity_factor = factor;
  layer.dtype = dtype;
  const int node = s.ranks >= 4 ? 2 : s.esp;
  const ParallelShape parallel{.nodes = s.ranks / node, .ranks_per_node = node, .mp = s.mp, .ep = s.ep, .esp = s.esp};
  return complete(layer, parallel, Rounding::ragged);
}

// What the suite has met, so that it can't silently lose the hard cases.
struct Met {
  int64_t plans = 0, dropped = 0, idle_experts = 0, short_of_rows = 0;
  double worst = 0;
} met;

void prove(LocalLayers& layers, const LayerReference& reference, const Plan& plan) {
  SCOPED_TRACE(fmt::format("{} r_f {} r_b {}", plan.schedule, plan.degree_forward, plan.degree_backward));
  layers.run(plan);
  for (const TensorError& e : layer_errors(layers.ranks(), reference)) {
    EXPECT_LE(e.error, tolerance_of(plan.shape.layer.dtype)) << e.tensor;
    met.worst = std::max(met.worst, e.error);
  }
  ++met.plans;
  met.short_of_rows += plan.rows < std::max(plan.degree_forward, plan.degree_backward);
}

void prove_all(const Case& shape, const LayerSeed& seed) {
  LocalLayers layers(shape, seed);
  const LayerReference reference = reference_layer(shape, seed);
  std::vector<std::vector<int32_t>> rows;
  for (const std::string_view schedule : {"ds-moe", "tutel", "fsmoe"})
    for (int forward = 1; forward <= 5; ++forward)
      for (int backward = 1; backward <= 5; ++backward) {
        prove(layers, reference, plan_for(shape, schedule, forward, backward, 0.17 * forward + 0.03 * backward));
        // Tokens drop at T_rank whatever the degree: no row may move.
        std::vector<std::vector<int32_t>> now;
        for (const MoeLayer* rank : layers.ranks()) now.push_back(rank->routing().row);
        if (rows.empty()) rows = now;
        EXPECT_EQ(now, rows);
        if (testing::Test::HasFailure()) return;
      }
  met.dropped += layers.dropped();
  met.idle_experts += layers.idle_experts();
}

class GradientTest : public testing::TestWithParam<Spread> {
 protected:
  static void TearDownTestSuite() {
    std::cout << fmt::format(
        "{} plans, worst error {:.2e} of the largest value; {} pairs dropped, {} experts idle, {} "
        "plans with T_rank < r\n",
        met.plans, met.worst, met.dropped, met.idle_experts, met.short_of_rows);
    EXPECT_GT(met.dropped, 0);
    EXPECT_GT(met.idle_experts, 0);
    EXPECT_GT(met.short_of_rows, 0);
  }
};

TEST_P(GradientTest, EverySchedulesAndDegreesGradientsAreAutograds) {
  const Spread s = GetParam();
  // Where many ranks share few tokens, T_rank is 1 and most chunks are empty.
  const bool skewed = (s.ranks + s.ep + s.esp) % 2 == 0;
  prove_all(case_of(s, s.mp > 4 ? 1 : 2, skewed ? 0.8 : 1.2, DType::float64),
            {.seed = 11, .layer = 2, .skew = skewed ? 1.5 : 0.0});
}

INSTANTIATE_TEST_SUITE_P(Spreads, GradientTest,
                         testing::Values(Spread{1, 1, 1, 1}, Spread{2, 2, 1, 1}, Spread{4, 2, 1, 1}, Spread{8, 4, 1, 1},
                                         Spread{2, 1, 2, 1}, Spread{4, 2, 2, 1}, Spread{8, 8, 2, 1}, Spread{2, 2, 1, 2},
                                         Spread{4, 1, 1, 2}, Spread{8, 2, 1, 2}, Spread{4, 2, 2, 2}, Spread{8, 4, 2, 2},
                                         Spread{8, 2, 4, 2}, Spread{8, 1, 4, 2}),
                         [](const auto& row) { return (std::ostringstream() << row.param).str(); });

}  // namespace
}  // namespace moe
