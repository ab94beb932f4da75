// The graphs of the gates against central differences of their losses; the auxiliary losses' values; what is refused.
#include <ATen/ATen.h>
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/layer/reference/detail/layer_graph.h"
#include "tests/layer/gate_ranks.h"

namespace moe {
namespace {

LayerCase case_of(std::string_view gate, double aux_loss, double z_loss, int64_t experts = 4) {
  LayerShape layer{.batch = 1, .seq = 8, .model_dim = 6, .hidden = 4, .heads = 2, .experts = experts};
  layer.dtype = DType::float64;
  layer.gate = gate;
  layer.aux_loss = aux_loss;
  layer.z_loss = z_loss;
  return complete(layer, {.nodes = 2, .ranks_per_node = 1, .ep = 2}, Rounding::ragged);
}

LayerCase with_its_losses(std::string_view gate) {
  const Losses losses = find_gate(gate).losses;
  return case_of(gate, losses == Losses::balance_and_z ? 0.5 : 0, losses != Losses::none ? 0.3 : 0);
}

class GateGraphTest : public testing::TestWithParam<std::string_view> {};

TEST_P(GateGraphTest, GradientsAreCentralDifferences) {
  at::manual_seed(3);
  const LayerCase shape = with_its_losses(GetParam());
  const GraphInputs inputs = graph_inputs(shape, {.seed = 4});
  GraphWeights leaves;
  for (const GraphWeight& weight : gate_weights(shape))
    leaves[std::string(weight.name)] = inputs.weights.at(std::string(weight.name));
  const at::Tensor hidden = inputs.input;
  at::Tensor multiply_by_weight, by_fill;
  const auto loss = [&] {
    const GateGraph g = gate_graph({shape, hidden, inputs.gate_noise, leaves, {}});
    if (!multiply_by_weight.defined())
      multiply_by_weight = at::randn(g.weight.sizes(), at::kDouble), by_fill = at::randn_like(multiply_by_weight);
    at::Tensor sum = (g.weight * multiply_by_weight).sum();
    if (g.fill.defined()) sum = sum + (g.fill * by_fill).sum();
    return g.auxiliary.defined() ? sum + g.auxiliary : sum;
  };
  std::map<std::string, at::Tensor> all = leaves;
  all["hidden"] = hidden;
  for (const auto& [name, leaf] : all) leaf.set_requires_grad(true);
  loss().backward();
  for (const auto& [name, leaf] : all) leaf.set_requires_grad(false);
  constexpr double kStep = 1e-5;
  for (const auto& [name, leaf] : all) {
    double* values = leaf.mutable_data_ptr<double>();
    const double norm = leaf.grad().abs().max().item<double>();
    ASSERT_GT(norm, 0) << name;
    for (int64_t i = 0; i < leaf.numel(); i += 1 + leaf.numel() / 40) {
      const double before = values[i];
      values[i] = before + kStep;
      const double above = loss().item<double>();
      values[i] = before - kStep;
      const double below = loss().item<double>();
      values[i] = before;
      EXPECT_NEAR((above - below) / (2 * kStep), leaf.grad().flatten()[i].item<double>(), 1e-7 * norm) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GateGraphTest, testing::ValuesIn(gate_names()), [](const auto& row) {
  std::string name(row.param);
  std::ranges::replace(name, '-', '_');
  return name;
});

GateResult run(const LayerCase& shape, const at::Tensor& hidden, const std::map<std::string, at::Tensor>& weights) {
  GateRanks ranks(shape, Flow::sharded, {.seed = 5});
  for (const auto& [name, values] : weights) ranks.set_weight(name, values);
  const int64_t choices = ranks.routing(0).choices;
  return ranks.run(hidden, {at::zeros({hidden.size(0), choices}, at::kDouble), {}});
}

TEST(AuxiliaryLosses, HaveTheirValuesWhereTheyAreKnown) {
  const at::Tensor hidden = at::ones({16, 6}, at::kDouble), zero = at::zeros({24}, at::kDouble);
  const std::map<std::string, at::Tensor> none{{"gate", zero}};
  // Without preference P_e = 1 / E, so that E sum f_e P_e = 1 whatever the choices; log sum exp of E zeros = log E.
  EXPECT_NEAR(run(case_of("switch", 0.5, 0), hidden, none).auxiliary, 0.5, 1e-15);
  EXPECT_NEAR(run(case_of("switch", 0, 0.5), hidden, none).auxiliary, 0.5 * std::pow(std::log(4), 2), 1e-15);
  EXPECT_NEAR(run(case_of("expert-choice", 0, 0.5), hidden, none).auxiliary, 0.5 * std::pow(std::log(4), 2), 1e-15);
  EXPECT_EQ(run(case_of("switch", 0, 0), hidden, none).auxiliary, 0);
  // All tokens prefer expert 2 alone: f_2 = P_2 = 1, the loss is E.
  const at::Tensor one = at::zeros({4, 6}, at::kDouble);
  one[2].fill_(100);
  EXPECT_NEAR(run(case_of("switch", 0.5, 0), hidden, {{"gate", one.flatten()}}).auxiliary, 2, 1e-12);
  EXPECT_NEAR(run(case_of("switch", 0, 0.5), hidden, {{"gate", one.flatten()}}).auxiliary, 0.5 * 600 * 600, 1e-6);
}

TEST(AuxiliaryLosses, PullTowardsBalanceOverAllRanks) {
  // Each rank's tokens prefer one expert, another on each rank: over all of them, half of the experts idle.
  const at::Tensor hidden = at::zeros({16, 6}, at::kDouble), weight = at::zeros({4, 6}, at::kDouble);
  hidden.narrow(0, 0, 8).select(1, 0).fill_(1);
  hidden.narrow(0, 8, 8).select(1, 1).fill_(1);
  weight[0][0] = 1;
  weight[1][1] = 1;
  const GateResult result = run(case_of("switch", 1, 0), hidden, {{"gate", weight.flatten()}});
  const double p = std::exp(1) / (std::exp(1) + 3), rest = (1 - p) / 3;
  EXPECT_NEAR(result.auxiliary, 4 * 2 * 0.5 * (p + rest) / 2, 1e-15);
  const at::Tensor d = result.d_weights.at("gate").view({4, 6});
  EXPECT_GT(d[0][0].item<double>(), 0);
  EXPECT_LT(d[2][0].item<double>(), 0);
  EXPECT_NEAR(d.sum().item<double>(), 0, 1e-15);
}

std::string complaint(const LayerCase& shape) {
  try {
    make_routing(rank_shape(shape, 0));
  } catch (const Unsupported& e) {
    return e.what();
  }
  return "none";
}

TEST(AuxiliaryLosses, AreRefusedByGatesThatHaveNone) {
  EXPECT_EQ(complaint(case_of("sigmoid", 0.1, 0)),
            "gate sigmoid: has no load-balancing loss, found aux-loss 0.1, expected 0");
  EXPECT_EQ(complaint(case_of("expert-choice", 0.1, 0)),
            "gate expert-choice: has no load-balancing loss, found aux-loss 0.1, expected 0");
  EXPECT_EQ(complaint(case_of("softmoe", 0, 0.2)), "gate softmoe: has no z loss, found z-loss 0.2, expected 0");
  EXPECT_EQ(complaint(case_of("expert-choice", 0, 0.1)), "none");
  EXPECT_EQ(complaint(case_of("xmoe", 0.1, 0.1)), "none");
}

}  // namespace
}  // namespace moe
