// Attention alone against its reference graph: heads that divide unevenly over MP, grouped queries.
#include "moe/layer/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <limits>

#include "moe/layer/reference/detail/layer_graph.h"
#include "moe/shape/volumes.h"
#include "tests/layer/graph_checks.h"

namespace moe {
namespace {

struct HeadShape {
  int64_t heads, kv_heads;
  int mp;
  double rope_theta = 0;
  int64_t head_dim = 0, window = 0;
};

LayerCase case_of(HeadShape s) {
  LayerShape layer{.batch = 6, .seq = 7, .model_dim = 24, .hidden = 12};
  layer.heads = s.heads;
  layer.kv_heads = s.kv_heads;
  layer.rope_theta = s.rope_theta;
  layer.head_dim = s.head_dim;
  layer.window = s.window;
  layer.dtype = DType::float64;
  return complete(layer, {.nodes = 2, .ranks_per_node = s.mp, .mp = s.mp}, Rounding::ragged);
}

class AttentionTest : public testing::TestWithParam<HeadShape> {
 protected:
  AttentionTest() : weights_(graph_inputs(shape_, seed_).weights) {
    for (const GraphWeight& w : attention_weights(shape_.layer))
      weights_.at(std::string(w.name)).set_requires_grad(true);
    loss().backward();
  }
  at::Tensor graph() const { return attention_graph(shape_.layer, in_, weights_); }
  at::Tensor loss() const { return (graph() * dy_).sum(); }

  LayerCase shape_ = case_of(GetParam());
  LayerSeed seed_{.seed = 8};
  Tensor x_ = random_tensor({42, 24}, 1), d_ = random_tensor({42, 24}, 2);
  at::Tensor in_ = graph_leaf(x_), dy_ = graph_leaf(d_).detach();
  GraphWeights weights_;
};

TEST_P(AttentionTest, ShardsAddUpToItsGraphAndPackTheirGradients) {
  at::Tensor output = at::zeros({42, 24}, at::kDouble), d_input = at::zeros_like(output);
  int64_t heads = 0, largest = 0;
  for (int rank = 0; rank < shape_.parallel.mp; ++rank) {
    const RankShape shard = rank_shape(shape_, rank);
    const auto attention = make_attention({shard, seed_});
    const Tensor out = random_tensor({42, 24}, 3), dx = random_tensor({42, 24}, 4);
    const Tensor gradients({gradient_bytes(shape_) / 8}, DType::float64);
    std::fill_n(gradients.view().as<double>(), gradients.view().elements(), std::numeric_limits<double>::quiet_NaN());
    for (int again = 0; again < 2; ++again) {  // nothing is left of a pass before
      attention->forward(x_, out);
      attention->backward_input(d_, dx);
      attention->backward_weights(x_, d_, gradients);
    }
    output += graph_leaf(out).detach();
    d_input += graph_leaf(dx).detach();
    const auto parameters = attention->parameters(gradients);
    EXPECT_LT(gradient_error(parameters, weights_), 1e-12);
    int64_t packed = 0;
    for (const Parameter& p : parameters) {
      EXPECT_EQ(p.gradient.data(), gradients.view().part(packed, {}).data()) << p.name;
      packed += p.gradient.elements();
    }
    largest = std::max(largest, 8 * packed);
    heads += shard.heads.count;
  }
  EXPECT_EQ(heads, shape_.layer.heads);
  EXPECT_EQ(largest, gradient_bytes(shape_)) << "what the plan sums over DP";
  EXPECT_LT((output - graph()).abs().max().item<double>(), 1e-12);
  EXPECT_LT((d_input - in_.grad()).abs().max().item<double>(), 1e-12);
}

TEST_P(AttentionTest, ItsGraphsGradientsAreCentralDifferences) {
  const auto of = [&] { return loss(); };
  EXPECT_LT(difference_error(in_, of), 1e-7);
  for (const GraphWeight& w : attention_weights(shape_.layer))
    EXPECT_LT(difference_error(weights_.at(std::string(w.name)), of), 1e-7) << w.name;
}

INSTANTIATE_TEST_SUITE_P(Heads, AttentionTest,
                         testing::Values(HeadShape{4, 4, 1}, HeadShape{3, 3, 2}, HeadShape{8, 2, 1}, HeadShape{8, 2, 2},
                                         HeadShape{6, 3, 2}, HeadShape{12, 4, 3}, HeadShape{12, 1, 1},
                                         HeadShape{4, 4, 1, 100}, HeadShape{6, 3, 2, 1e4}, HeadShape{5, 5, 2, 0, 6},
                                         HeadShape{6, 3, 2, 1e4, 10}, HeadShape{12, 4, 3, 100, 6},
                                         HeadShape{8, 4, 2, 0, 1}, HeadShape{4, 4, 1, 0, 0, 3},
                                         HeadShape{6, 3, 2, 1e4, 10, 2}, HeadShape{12, 4, 3, 100, 6, 6}),
                         [](const auto& row) {
                           return fmt::format("h{}kv{}mp{}{}w{}window{}", row.param.heads, row.param.kv_heads,
                                              row.param.mp, row.param.rope_theta > 0 ? "rotary" : "",
                                              row.param.head_dim, row.param.window);
                         });

TEST(Attention, HeadsOfOddWidthHaveNoPairsToRotate) {
  try {
    case_of({8, 8, 1, 1e4});
    FAIL();
  } catch (const BadInput& e) {
    EXPECT_EQ(std::string(e.what()),
              "rope-theta: found heads 3 wide, expected an even width: head-dim, or model-dim / heads");
  }
}

TEST(Attention, EveryRankNeedsAKeyValueHead) {
  try {
    rank_shape(case_of({6, 2, 3}), 0);
    FAIL();
  } catch (const BadInput& e) {
    EXPECT_EQ(std::string(e.what()), "kv-heads = 2 over mp = 3: every rank needs a key-value head");
  }
}

}  // namespace
}  // namespace moe
