// Norms alone against their reference graph.
#include "moe/layer/norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "moe/layer/reference/detail/layer_graph.h"
#include "tests/layer/graph_checks.h"

namespace moe {
namespace {

class NormTest : public testing::TestWithParam<Norm> {};

TEST_P(NormTest, EqualsItsGraph) {
  LayerShape layer{.batch = 1, .seq = 9, .model_dim = 21, .hidden = 4, .heads = 3, .experts = 1, .top_k = 1};
  layer.norm = GetParam();
  layer.dtype = DType::float64;
  const LayerCase c = complete(layer, {}, Rounding::ragged);
  const RankShape rank = rank_shape(c, 0);
  const auto norm = make_norm({rank, {.seed = 3}}, kNormGain2);
  const std::vector<Parameter> gain = norm->parameters(1);
  const Tensor x = random_tensor({9, 21}, 1), d = random_tensor({9, 21}, 2), y({9, 21}, DType::float64);
  fill_random(gain[0].gradient, 3);  // overwritten

  const GraphWeights weights = graph_inputs(c, {.seed = 3}).weights;
  const at::Tensor in = graph_leaf(x), dy = graph_leaf(d).detach(), g = weights.at(std::string(kNormGain2));
  g.set_requires_grad(true);
  const auto graph = [&] { return norm_graph(c.layer, in, weights, kNormGain2); };
  const auto loss = [&] { return (graph() * dy).sum(); };
  loss().backward();

  norm->forward(x, y);
  EXPECT_LT(error_of(y, graph()), 1e-13);
  norm->backward(x, d);
  EXPECT_LT(error_of(d, in.grad()), 1e-13);
  EXPECT_LT(gradient_error(gain, weights), 1e-13);
  for (const at::Tensor& leaf : {in, g}) EXPECT_LT(difference_error(leaf, loss), 1e-7);
}

INSTANTIATE_TEST_SUITE_P(Both, NormTest, testing::Values(Norm::layernorm, Norm::rmsnorm),
                         [](const auto& row) { return std::string(name_of(row.param)); });

}  // namespace
}  // namespace moe
