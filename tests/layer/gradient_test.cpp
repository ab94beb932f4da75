// The proof: outputs, dX and every dW of the layer under real plans, on real ranks, against the autograd reference; for
// every schedule, r_f and r_b in 1 .. 5, 1 to 8 ranks, EP x ESP up to 4 x 2; with balanced and with skewed routing that
// drops tokens, leaves experts idle and has T_rank smaller than r.
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <memory>

#include "tests/layer/local_layers.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

struct Spread {
  int ranks, mp, ep, esp;
};

LayerCase case_of(const Spread& s, int64_t batch, double factor, DType dtype) {
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
  layers.poison();
  layers.run(plan);
  for (const TensorError& e : layer_errors(layers.ranks(), reference)) {
    EXPECT_LE(e.error, tolerance_of(plan.shape.layer.dtype)) << e.tensor;
    met.worst = std::max(met.worst, e.error);
  }
  ++met.plans;
  met.short_of_rows += plan.rows < std::max(plan.degree_forward, plan.degree_backward);
}

// The degrees that a schedule can have, up to 5; `every`: all pairs of them, else each once.
std::vector<std::pair<int, int>> degrees_of(const Schedule& schedule, bool every) {
  std::vector<std::pair<int, int>> all;
  for (int forward = 1; forward <= (schedule.degrees == DegreePolicy::one ? 1 : 5); ++forward)
    for (int backward = 1; backward <= 5; ++backward)
      if (schedule.degrees == DegreePolicy::apart ? every || backward == 2 * forward % 5 + 1 : forward == backward)
        all.emplace_back(forward, backward);
  return all;
}

// The rows of the tokens that each rank has for its own.
std::vector<std::vector<int32_t>> own_rows(const LocalLayers& layers) {
  std::vector<std::vector<int32_t>> all;
  for (const MoeLayer* rank : layers.ranks()) {
    const Routing& r = rank->routing();
    const auto pairs = r.group_tokens * r.choices, first = rank->shape().own_group * pairs;
    all.emplace_back(r.row.begin() + first, r.row.begin() + first + pairs);
  }
  return all;
}

void prove_all(const LayerCase& shape, const LayerSeed& seed, bool every) {
  std::map<Flow, std::unique_ptr<LocalLayers>> by_flow;
  const LayerReference reference = reference_layer(shape, seed);
  std::vector<std::vector<int32_t>> rows;
  for (const Schedule* row : any_decision::fitting(shape)) {
    const Schedule& schedule = *row;
    auto& layers = by_flow[schedule.flow];
    if (!layers) layers = std::make_unique<LocalLayers>(shape, seed, schedule.flow);
    for (uint64_t draw = 1; draw <= 2; ++draw)  // lane orders and places of gradient pieces
      if (schedule.searched_order || sends_pieces(schedule))
        prove(*layers, reference, build_plan(schedule, shape, any_decision::any_decision(schedule, shape, draw, 5)));
    for (const auto& [forward, backward] : degrees_of(schedule, every)) {
      prove(*layers, reference, plan_for(shape, schedule.name, forward, backward, 0.17 * forward + 0.03 * backward));
      // Tokens drop at T_rank whatever the degree and the flow: no row may move.
      if (rows.empty()) rows = own_rows(*layers);
      EXPECT_EQ(own_rows(*layers), rows);
      if (testing::Test::HasFailure()) return;
    }
  }
  met.dropped += by_flow[Flow::sharded]->dropped();
  met.idle_experts += by_flow[Flow::sharded]->idle_experts();
}

// 1 to 8 ranks, EP x ESP in 1x1, 2x1, 1x2, 2x2, 4x2 with replicas for the rest, every MP that divides the ranks;
// each with its number.
std::vector<std::pair<int, Spread>> spreads() {
  std::vector<std::pair<int, Spread>> all;
  for (const int ranks : {1, 2, 4, 8})
    for (const auto& [ep, esp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 2}})
      for (int mp = 1; mp <= ranks && ranks % (ep * esp) == 0; mp *= 2)
        all.emplace_back(static_cast<int>(all.size()), Spread{ranks, mp, ep, esp});
  return all;
}

class GradientTest : public testing::TestWithParam<std::pair<int, Spread>> {
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
  // Every other one is skewed: few experts get all tokens, most of which are dropped.
  // All pairs of degrees run for one MP of each spread.
  const auto& [index, s] = GetParam();
  const bool every = s.mp == std::max(1, s.ranks / 2);
  if (index % 2 == 0) {
    prove_all(case_of(s, 4, 1.2, DType::float64), {.seed = 11, .layer = 2}, every);
  } else {
    prove_all(case_of(s, 2, 0.8, DType::float64), {.seed = 12, .skew = 4}, every);
  }
}

// Rows are rounded alike whatever chunk they are in, and weights' gradients are of numbers as they are.
TEST(Fp8GradientTest, AreThoseOfTheReferenceToo) {
  for (const Spread& s : {Spread{1, 1, 1, 1}, {4, 2, 2, 2}, {4, 1, 4, 1}}) {
    LayerCase shape = case_of(s, 2, 0.8, DType::float64);
    shape.layer.heads = shape.layer.kv_heads = 8;
    shape.layer.model_dim = kFp8Block;
    shape.layer.hidden = 2 * kFp8Block;
    shape.layer.ffn = Ffn::mixtral_fp8;
    shape.layer.norm = Norm::by_ffn;
    prove_all(complete(shape.layer, shape.parallel, shape.rounding), {.seed = 13, .skew = 3}, false);
  }
}

TEST(WidthsOfOne, AreProvenToo) {
  for (const bool bias : {false, true})
    for (const auto& [model_dim, hidden] : {std::pair<int64_t, int64_t>{20, 1}, {1, 12}, {1, 1}}) {
      LayerCase shape = case_of({4, 1, 2, 1}, 2, 1.2, DType::float64);
      shape.layer.heads = shape.layer.kv_heads = 1;
      shape.layer.model_dim = model_dim;
      shape.layer.hidden = hidden;
      shape.layer.bias = bias;
      prove_all(complete(shape.layer, shape.parallel, shape.rounding), {.seed = 14}, false);
    }
}

INSTANTIATE_TEST_SUITE_P(Spreads, GradientTest, testing::ValuesIn(spreads()), [](const auto& row) {
  const Spread& s = row.param.second;
  return fmt::format("{}ranks_mp{}_ep{}_esp{}", s.ranks, s.mp, s.ep, s.esp);
});

}  // namespace
}  // namespace moe
