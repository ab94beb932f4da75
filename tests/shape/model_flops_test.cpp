#include <gtest/gtest.h>

#include "moe/shape/volumes.h"

namespace moe {
namespace {

LayerCase alone(LayerShape layer) { return complete(layer, {.dp = 1, .mp = 1, .ep = 1, .esp = 1}, Rounding::exact); }

// Mixtral 8x7B (Jiang et al., 2024, section 2): 12.9 billion parameters work on a token. Its embedding is looked up.
TEST(StepFlops, AreSixAWeightThatWorksAndTheScores) {
  LayerShape mixtral{.batch = 1, .seq = 4096, .model_dim = 4096, .hidden = 14336};
  mixtral.heads = 32;
  mixtral.kv_heads = 8;
  mixtral.experts = 8;
  mixtral.top_k = 2;
  mixtral.ffn = Ffn::mixtral;
  const double found = step_flops(alone(mixtral), {.layers = 32, .vocabulary = 32000}) / 4096;
  const double scores = 12.0 * 4096 * 4096 * 32;  // PaLM: 12 layers heads width L
  EXPECT_NEAR((found - scores) / 6, 12.9e9 - 32000.0 * 4096, 0.01 * 12.9e9);
}

// Qwen3-30B-A3B's card: 3.3 billion parameters work on a token, embeddings counted; 32 heads of 128 over M = 2048.
TEST(StepFlops, CountHeadsByTheirWidth) {
  LayerShape qwen{.batch = 1, .seq = 4096, .model_dim = 2048, .hidden = 768, .heads = 32, .kv_heads = 4};
  qwen.head_dim = 128;
  qwen.experts = 128;
  qwen.top_k = 8;
  qwen.ffn = Ffn::mixtral;
  const double found = step_flops(alone(qwen), {.layers = 48, .vocabulary = 151936}) / 4096;
  const double scores = 12.0 * 4096 * 4096 * 48;  // of all heads together, 4096 wide
  EXPECT_NEAR((found - scores) / 6, 3.35e9 - 151936.0 * 2048, 0.01 * 3.35e9);
}

TEST(StepFlops, AreThoseOfAllRanksTasks) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 128, .hidden = 512, .shared_hidden = 96};
  layer.heads = 8;
  layer.kv_heads = 4;
  layer.experts = 4;
  layer.top_k = 2;
  layer.capacity_factor = 1;
  const ParallelShape parallel{.nodes = 2, .ranks_per_node = 4, .dp = 4, .mp = 2, .ep = 2, .esp = 2};
  const LayerCase shape = complete(layer, parallel, Rounding::exact);
  // A rank's gathered rows of its experts are capacity rows of all its EP and ESP peers' tokens.
  const double rows = capacity_exact(shape);
  const double a_rank = attention_flops(shape) + moe_volumes(shape, rows).expert_flops + shared_flops(shape);
  const double gate = kFlopsPerMac * 4 * 128 * (2 * 64 / 2);  // of its own tokens
  EXPECT_DOUBLE_EQ(step_flops(shape, {.layers = 3, .micro_batches = 5}), 3 * 8 * 3 * 5 * (a_rank + gate));
}

TEST(StepFlops, GrowWithTheVocabulary) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 128, .hidden = 512, .heads = 8, .experts = 4};
  const LayerCase shape = alone(layer);
  EXPECT_DOUBLE_EQ(step_flops(shape, {.vocabulary = 1000}) - step_flops(shape, {}), 6.0 * 128 * 1000 * 128);
}

}  // namespace
}  // namespace moe
