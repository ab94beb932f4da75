// Every gate alone, on every rank and in flows that gate a token once, on all ranks of its MP group, or on those of its
// ESP group too, against its graph: choices, weights and the gradients of hidden states and of every weight.
#include <ATen/ATen.h>
#include <algorithm>
#include <gtest/gtest.h>
#include <iostream>
#include <set>

#include "moe/layer/reference/detail/layer_graph.h"
#include "tests/layer/gate_ranks.h"

namespace moe {
namespace {

constexpr double kTolerance = 1e-11;

struct Variant {
  std::string_view name;
  int64_t seq, experts, top_k;
  double factor, skew = 0, aux_loss = 0, z_loss = 0;
  bool ties = false;
};

constexpr std::array kVariants{
    Variant{"balanced", 12, 4, 2, 1.2},
    Variant{.name = "one_choice", .seq = 12, .experts = 6, .top_k = 1, .factor = 0.7},
    Variant{.name = "skewed", .seq = 16, .experts = 8, .top_k = 3, .factor = 0.6, .skew = 3},
    Variant{
        .name = "losses", .seq = 12, .experts = 4, .top_k = 2, .factor = 1, .skew = 1, .aux_loss = 0.3, .z_loss = 0.1},
    Variant{.name = "z_loss", .seq = 12, .experts = 4, .top_k = 2, .factor = 1, .z_loss = 0.2},
    Variant{.name = "fewer_tokens_than_rows", .seq = 4, .experts = 4, .top_k = 4, .factor = 1.5},
    Variant{.name = "two_experts", .seq = 6, .experts = 2, .top_k = 1, .factor = 1},
    Variant{.name = "ties", .seq = 12, .experts = 4, .top_k = 2, .factor = 0.8, .ties = true}};

LayerCase case_of(std::string_view gate, const Variant& v) {
  LayerShape layer{.batch = 1, .seq = v.seq, .model_dim = 18, .hidden = 4, .heads = 2, .experts = v.experts};
  layer.top_k = v.top_k;
  layer.capacity_factor = v.factor;
  layer.dtype = DType::float64;
  layer.gate = gate;
  const Losses losses = find_gate(gate).losses;
  if (losses == Losses::balance_and_z) layer.aux_loss = v.aux_loss;
  if (losses != Losses::none) layer.z_loss = v.z_loss;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2}, Rounding::ragged);
}

// What the suite has met, so that it can't silently lose the hard cases.
struct Met {
  int64_t dropped = 0, idle = 0, ties = 0, empty_rows = 0;
  double worst = 0;
} met;

class GateTest : public testing::TestWithParam<std::tuple<std::string_view, Variant>> {
 protected:
  GateTest()
      : variant_(std::get<1>(GetParam())),
        shape_(case_of(std::get<0>(GetParam()), variant_)),
        inputs_(graph_inputs(shape_, seed_)),
        hidden_(inputs_.input) {
    at::manual_seed(7);
    if (!variant_.ties) return;
    hidden_ = at::randint(-2, 3, hidden_.sizes(), at::kDouble);  // products are exact
    hidden_.narrow(0, 1, 5).copy_(hidden_[0]);
    hidden_.select(1, 0).fill_(1);
    for (auto& [name, weight] : inputs_.weights)
      if (name == kGateWeight || name == kGateProjection) {
        weight = at::randint(-1, 2, weight.sizes(), at::kDouble);
        weight[1].copy_(weight[0]);
      } else if (name == kGateNoise) {
        weight = at::zeros_like(weight);
        weight.select(1, 0).fill_(-1e6);  // softplus(spread) = 0
      }
  }
  static void TearDownTestSuite() {
    std::cout << fmt::format("worst error {:.1e}; {} pairs dropped, {} experts idle, {} ties, {} empty rows\n",
                             met.worst, met.dropped, met.idle, met.ties, met.empty_rows);
    EXPECT_GT(met.dropped, 0);
    EXPECT_GT(met.idle, 0);
    EXPECT_GT(met.ties, 0);
    EXPECT_GT(met.empty_rows, 0);
  }

  void prove(Flow flow, const std::vector<int32_t>& preset = {});
  static void near(const at::Tensor& found, const at::Tensor& expected, std::string_view what);
  void compare_rows(const GateResult& found, const GateGraph& graph) const;

  Variant variant_;
  LayerCase shape_;
  LayerSeed seed_{.seed = 3, .skew = variant_.skew};
  GraphInputs inputs_;
  at::Tensor hidden_;
};

void GateTest::near(const at::Tensor& found, const at::Tensor& expected, std::string_view what) {
  const double norm = std::max(expected.abs().max().item<double>(), 1e-3);
  const double error = (found.flatten() - expected.flatten()).abs().max().item<double>() / norm;
  EXPECT_LE(error, kTolerance) << what;
  met.worst = std::max(met.worst, error);
}

// Kept pairs alike; rows of a group and expert without gaps, one token each unless the gate mixes.
void GateTest::compare_rows(const GateResult& found, const GateGraph& graph) const {
  const int64_t group = shape_.layer.seq / shape_.parallel.mp;
  std::map<std::pair<int64_t, int32_t>, std::multiset<int32_t>> rows;
  for (size_t pair = 0; pair < found.row.size(); ++pair) {
    EXPECT_EQ(found.row[pair] < 0, graph.row[pair] < 0) << "pair " << pair;
    met.dropped += found.row[pair] < 0;
    if (found.row[pair] >= 0)
      rows[{static_cast<int64_t>(pair) / graph.choices / group, found.expert[pair]}].insert(found.row[pair]);
  }
  for (const auto& [of, taken] : rows) {
    const std::set<int32_t> once(taken.begin(), taken.end());
    EXPECT_EQ(*once.rbegin() + 1, static_cast<int32_t>(once.size()));
    EXPECT_EQ(taken.size(), once.size() * static_cast<size_t>(found.fill.defined() ? group : 1));
  }
  std::set<int32_t> chosen(found.expert.begin(), found.expert.end());
  chosen.erase(-1);
  met.idle += shape_.layer.experts - static_cast<int64_t>(chosen.size());
}

void GateTest::prove(Flow flow, const std::vector<int32_t>& preset) {
  SCOPED_TRACE(name_of(flow));
  GateRanks ranks(shape_, flow, seed_);
  GraphWeights weights;
  for (const GraphWeight& weight : gate_weights(shape_)) {
    const std::string name(weight.name);
    if (variant_.ties)
      ranks.set_weight(name, inputs_.weights.at(name).flatten());
    else
      EXPECT_TRUE(ranks.weight(name).equal(inputs_.weights.at(name).flatten())) << name << " begins otherwise";
    weights[name] = inputs_.weights.at(name).clone().set_requires_grad(true);
  }
  if (!preset.empty()) ranks.preset(preset);
  const at::Tensor hidden = hidden_.detach().clone().set_requires_grad(true);
  const GateGraph graph = gate_graph({shape_, hidden, inputs_.gate_noise, weights, preset, 0, !preset.empty()});
  const GateLoss loss{at::randn(graph.weight.sizes(), at::kDouble), at::randn(graph.weight.sizes(), at::kDouble)};
  const GateResult found = ranks.run(hidden_, loss);

  ASSERT_EQ(found.expert, graph.expert);
  for (int64_t t = 1; t < hidden_.size(0); ++t) met.ties += graph.weight[t].equal(graph.weight[t - 1]);
  compare_rows(found, graph);
  const at::Tensor kept = (indices(graph.row) >= 0).view(graph.weight.sizes());
  near(found.weight * kept, graph.weight * kept, "weight");
  at::Tensor total = (graph.weight * kept * loss.d_weight).sum();
  if (graph.fill.defined()) {
    near(found.fill, graph.fill, "fill");
    total = total + (graph.fill * loss.d_fill).sum();
  }
  if (graph.auxiliary.defined()) total = total + graph.auxiliary;
  near(at::scalar_tensor(found.auxiliary, at::kDouble),
       graph.auxiliary.defined() ? graph.auxiliary : at::zeros({}, at::kDouble), "auxiliary loss");
  total.backward();
  near(found.d_hidden, hidden.grad(), "gradient of hidden");
  for (const auto& [name, weight] : weights) near(found.d_weights.at(name), weight.grad(), "gradient of " + name);
  for (const int64_t filled : ranks.routing(0).filled) met.empty_rows += ranks.routing(0).rows - filled;
}

TEST_P(GateTest, IsItsGraphInEveryFlow) {
  for (const Flow flow : {Flow::sharded, Flow::tensor, Flow::replicated}) prove(flow);
}

using PresetGateTest = GateTest;

TEST_P(PresetGateTest, OnlyWeighsThem) {
  std::vector<int32_t> experts;
  for (int64_t t = 0; t < hidden_.size(0); ++t)
    for (int64_t c = 0; c < shape_.layer.top_k; ++c)
      experts.push_back(static_cast<int32_t>((t * t + c * (shape_.layer.experts - 1)) % shape_.layer.experts));
  prove(Flow::sharded, experts);
  prove(Flow::replicated, experts);
}

std::string name_of_case(const testing::TestParamInfo<GateTest::ParamType>& row) {
  std::string name = fmt::format("{}_{}", std::get<0>(row.param), std::get<1>(row.param).name);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<std::string_view> top_k_gates() {
  std::vector<std::string_view> names;
  for (const GatePart& gate : kGateParts)
    if (gate.choices == Choices::top_k) names.push_back(gate.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, GateTest, testing::Combine(testing::ValuesIn(gate_names()), testing::ValuesIn(kVariants)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(TopK, PresetGateTest,
                         testing::Combine(testing::ValuesIn(top_k_gates()), testing::ValuesIn(kVariants)),
                         name_of_case);

}  // namespace
}  // namespace moe
