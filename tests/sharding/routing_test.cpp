// Rows of T_rank and the gates' choices and weights, on cases small enough to know the answer.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/layer/gates/gate.h"

namespace moe {
namespace {

TEST(AssignRows, TakesFirstChoicesInTokenOrderThenSecondOnesAndDropsWhatIsTooMuch) {
  Routing r({.tokens = 4, .group_tokens = 4, .choices = 2, .experts = 3, .rows = 2}, DType::float64);
  r.expert = {0, 1, 0, 1, 0, 2, 1, 0};  // tokens 0, 1, 2 want expert 0 first, token 3 expert 1
  assign_rows(r);
  EXPECT_EQ(r.row, (std::vector<int32_t>{0, 1, 1, -1, -1, 0, 0, -1}));
  EXPECT_EQ(r.filled, (std::vector<int64_t>{2, 2, 1}));
  r.expert = {2, 1, 2, 1, 2, 1, 2, 1};
  assign_rows(r);  // nothing is left of the routing before
  EXPECT_EQ(r.row, (std::vector<int32_t>{0, 0, 1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(r.filled, (std::vector<int64_t>{0, 2, 2}));
}

TEST(AssignRows, CountsCapacityByGroupsOfTokens) {
  Routing r({.tokens = 4, .group_tokens = 2, .choices = 2, .experts = 3, .rows = 1}, DType::float64);
  r.expert = {0, 1, 0, 2, 0, 1, 2, 0};
  assign_rows(r);
  EXPECT_EQ(r.row, (std::vector<int32_t>{0, 0, -1, 0, 0, 0, 0, -1}));
  EXPECT_EQ(r.filled, (std::vector<int64_t>{1, 1, 1, 1, 1, 1}));
}

RankShape rank_of(std::string_view gate, int64_t experts, int64_t top_k, int64_t seq = 6, double factor = 1.2) {
  LayerShape layer{.batch = 1, .seq = seq, .model_dim = 4, .hidden = 4, .heads = 1, .experts = experts, .top_k = top_k};
  layer.dtype = DType::float64;
  layer.capacity_factor = factor;
  layer.gate = gate;
  return rank_shape(complete(layer, {.nodes = 2, .ranks_per_node = 1, .ep = 2}, Rounding::ragged), 1);
}

// A gate whose logits are the hidden state's first columns, without noise.
struct PlainGate {
  explicit PlainGate(const RankShape& s)
      : routing(make_routing(s)),
        gate(find_gate(s.shape.layer.gate).make({s, {}})),
        hidden({s.tokens.count, 4}, s.dtype()) {
    for (const Parameter& p : gate->parameters()) {
      double* w = p.value.as<double>();
      std::fill_n(w, p.value.elements(), p.name == kGateNoise ? -1e6 : 0);  // softplus(hidden . noise) = 0
      for (int64_t e = 0; e < std::min<int64_t>(4, p.axes[1].count) && p.name != kGateNoise; ++e) w[e * 4 + e] = 1;
    }
  }
  void forward(const std::vector<double>& rows) {
    std::ranges::copy(rows, hidden.view().as<double>());
    gate->forward(hidden, routing);
  }
  const double* weight() const { return routing.weight.view().as<double>(); }

  Routing routing;
  std::unique_ptr<Gate> gate;
  Tensor hidden;
};

class TopKGate : public testing::TestWithParam<std::string_view> {};

TEST_P(TopKGate, TakesTheLargestLogitsAndPrefersTheLowerExpertOfEqualOnes) {
  PlainGate g(rank_of(GetParam(), 4, 2, 4));
  g.forward({1, 2, 4, 3, 5, 5, 5, 5, 1, 3, 1, 3, 2, 1, 1, 1});
  EXPECT_EQ(g.routing.expert, (std::vector<int32_t>{2, 3, 0, 1, 1, 3, 0, 1}));
  for (int64_t t = 0; t < 4; ++t) EXPECT_GE(g.weight()[2 * t], g.weight()[2 * t + 1]);
  g.forward({4, 3, 2, 1, 0, 1, 2, 3, 1, 4, 3, 2, 0, 0, 0, 1});  // nothing is left of the tokens before
  EXPECT_EQ(g.routing.expert, (std::vector<int32_t>{0, 1, 3, 2, 1, 2, 3, 0}));
}

TEST_P(TopKGate, RoutesNotANumberSomewhere) {
  PlainGate g(rank_of(GetParam(), 4, 3, 2));
  g.forward({NAN, NAN, NAN, NAN, 1, NAN, 3, 2});
  for (size_t t = 0; t < 6; t += 3) {
    std::vector<int32_t> experts(g.routing.expert.begin() + static_cast<int>(t),
                                 g.routing.expert.begin() + static_cast<int>(t) + 3);
    std::ranges::sort(experts);
    EXPECT_EQ(std::ranges::adjacent_find(experts), experts.end());
    EXPECT_TRUE(experts.front() >= 0 && experts.back() < 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Linear, TopKGate, testing::Values("gshard", "switch", "topk", "sigmoid"),
                         [](const auto& row) { return std::string(row.param); });

TEST(Gates, WeighAsTheirOriginalsDo) {
  const double e = std::exp(1.0);
  PlainGate gshard(rank_of("gshard", 4, 2, 2)), all(rank_of("switch", 4, 2, 2)), sigmoid(rank_of("sigmoid", 4, 2, 2)),
      topk(rank_of("topk", 4, 2, 2));
  for (PlainGate* g : {&gshard, &all, &sigmoid, &topk}) g->forward({3, 2, 2, 2, 1, 1, 1, 0});
  for (PlainGate* g : {&gshard, &topk}) {
    EXPECT_NEAR(g->weight()[0], e / (e + 1), 1e-15) << "of the two kept";
    EXPECT_NEAR(g->weight()[3], 0.5, 1e-15);
  }
  EXPECT_NEAR(all.weight()[0], e / (e + 3), 1e-15) << "of all four";
  EXPECT_NEAR(all.weight()[3], e / (3 * e + 1), 1e-15);
  EXPECT_NEAR(sigmoid.weight()[0], 1 / (1 + std::exp(-3.0)), 1e-15) << "each by itself";
  EXPECT_NEAR(sigmoid.weight()[3], 1 / (1 + std::exp(-1.0)), 1e-15);
}

TEST(ExpertChoiceGate, LetsEveryExpertTakeItsBestTokensTheLowerOfEqualOnes) {
  PlainGate g(rank_of("expert-choice", 4, 2, 4, 1));  // T_rank = 2
  // Scores are softmax over the experts: equal logits are equal scores of 1/4 whatever their size.
  g.forward({9, 9, 9, 9, 1, 1, 1, 1, 0, 3, 0, 0, 5, 5, 5, 5});
  constexpr int32_t n = Routing::kDropped;
  EXPECT_EQ(g.routing.expert, (std::vector<int32_t>{0, 1, 2, 3, 0, n, 2, 3, n, 1, n, n, n, n, n, n}));
  EXPECT_EQ(g.routing.row, (std::vector<int32_t>{0, 0, 0, 0, 1, n, 1, 1, n, 1, n, n, n, n, n, n}));
  EXPECT_EQ(g.routing.filled, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_NEAR(g.weight()[0], 0.25, 1e-15);
  EXPECT_EQ(g.weight()[5], 0);
}

TEST(ExpertChoiceGate, LeavesRowsEmptyWhereAGroupHasFewerTokens) {
  PlainGate g(rank_of("expert-choice", 2, 2, 2, 3));  // T_rank = 6
  g.forward({1, 0, 0, 0, 0, 1, 0, 0});
  EXPECT_EQ(g.routing.filled, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(g.routing.row, (std::vector<int32_t>{0, 0, 1, 1}));
}

TEST(SoftMoeGate, MixesAllTokensIntoEveryRowAndAllRowsIntoEveryToken) {
  PlainGate g(rank_of("softmoe", 2, 1, 2, 1));  // T_rank = 1
  g.forward({0, std::log(3.0), 0, 0, 0, 0, 0, 0});
  const double* fill = g.routing.fill.view().as<double>();
  EXPECT_NEAR(fill[0], 0.5, 1e-15);
  EXPECT_NEAR(fill[1], 0.75, 1e-15) << "over the tokens";
  EXPECT_NEAR(fill[3], 0.25, 1e-15);
  EXPECT_NEAR(g.weight()[1], 0.75, 1e-15) << "over the rows";
  EXPECT_NEAR(g.weight()[3], 0.5, 1e-15);
  EXPECT_EQ(g.routing.expert, (std::vector<int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(g.routing.row, (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST(GShardGate, DrawsItsNoiseByGlobalToken) {
  const RankShape second = rank_of("gshard", 4, 4);
  const LayerSeed seed{.seed = 3};
  const Tensor both({2 * second.tokens.count, 4}, DType::float64), part({second.tokens.count, 4}, DType::float64);
  fill_gate_noise(both, {0, both.view().size(0), both.view().size(0)}, second.shape, seed);
  fill_gate_noise(part, second.tokens, second.shape, seed);
  EXPECT_EQ(second.tokens.first, 6);
  for (int64_t i = 0; i < part.view().elements(); ++i)
    EXPECT_EQ(part.view().as<double>()[i], both.view().as<double>()[second.tokens.first * 4 + i]);
  fill_gate_noise(part, second.tokens, second.shape, {.seed = 3, .noisy = false});
  for (int64_t i = 0; i < part.view().elements(); ++i) EXPECT_EQ(part.view().as<double>()[i], 0);
}

// Ranks that share samples draw what one rank draws for the same places.
TEST(GShardGate, DrawsItsNoiseByPlaceUnderContextParallelism) {
  LayerShape layer{.batch = 2, .seq = 12, .model_dim = 4, .hidden = 4, .heads = 1, .experts = 4, .top_k = 2};
  ParallelShape parallel{.nodes = 2, .ranks_per_node = 1};
  const LayerCase apart = complete(layer, parallel, Rounding::ragged);
  parallel.cp = 2;
  layer.batch *= 2;  // of a CP group: all tokens are as many
  const LayerCase shared = complete(layer, parallel, Rounding::ragged);
  const LayerSeed seed{.seed = 3, .micro_batch = 1, .step = 2};
  const Tensor whole({48, 4}, DType::float64), part({24, 4}, DType::float64);
  fill_gate_noise(whole, {0, 48, 48}, apart, seed);
  for (int rank = 0; rank < 2; ++rank) {
    const RankShape place = rank_shape(shared, rank);
    ASSERT_EQ(place.tokens, (ShardRange{24 * rank, 24, 48}));
    fill_gate_noise(part, place.tokens, shared, seed);
    for (int64_t t = 0; t < 24; ++t) {
      const int64_t sample = t / 6, half = t % 6 / 3, piece = half == 0 ? rank : 3 - rank;
      for (int64_t e = 0; e < 4; ++e)
        EXPECT_EQ(part.view().as<double>()[4 * t + e],
                  whole.view().as<double>()[4 * (12 * sample + 3 * piece + t % 3) + e])
            << "rank " << rank << ", token " << t;
    }
  }
}

TEST(Gates, AreFoundByName) {
  try {
    find_gate("gshart");
    FAIL();
  } catch (const BadInput& e) {
    EXPECT_EQ(std::string(e.what()),
              "gate: unknown 'gshart', expected one of: gshard, switch, topk, sigmoid, xmoe, softmoe, expert-choice; "
              "did you mean 'gshard'?");
  }
}

}  // namespace
}  // namespace moe
