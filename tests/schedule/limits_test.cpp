// Sizes beyond what can be counted or planned are refused in one line; all others are counted without overflow.
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/schedule/model_plan.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

LayerCase two_nodes(LayerShape layer = {}) {
  return complete(std::move(layer), {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

TEST(Limits, TasksOfAPlan) {
  const Schedule& schedule = find_schedule("tutel");
  EXPECT_NO_THROW(check_size(schedule, {two_nodes(), 96, 256}, 4, 4));
  EXPECT_EQ(error_of<BadInput>([&] {
              check_size(schedule, {two_nodes(), 1'000'000, 2}, 4, 4);
            }),
            "layers x micro-batches: found 1000000 x 2 of 52 tasks each (schedule tutel, degrees 4 and 4), expected at "
            "most 2000000 tasks in a plan");
}

TEST(Limits, PiecesOfALayersGradients) {
  const LayerCase shape = two_nodes();
  const std::string text = error_of<BadInput>([&] { gradient_pieces(find_schedule("lina"), shape, 1); });
  EXPECT_TRUE(text.starts_with("micro-op-bytes: found 1, which cuts 8388608 gradient bytes")) << text;
  EXPECT_NE(text.find("expected at least 84 (100000 pieces at most)"), std::string::npos) << text;
  EXPECT_LE(gradient_pieces(find_schedule("lina"), shape, 84).size(), static_cast<size_t>(kMaxPieces));
}

TEST(Limits, LayersTooWideToCount) {
  LayerShape layer;
  layer.model_dim = layer.hidden = 4'000'000'000;
  const std::string text = error_of<BadInput>([&] { two_nodes(layer); });
  EXPECT_NE(text.find("model-dim"), std::string::npos) << text;
  EXPECT_NE(text.find("expected a product of at most 9007199254740992"), std::string::npos) << text;
}

// Sizes of any order of magnitude: refused, or counted as in floating point.
TEST(Limits, NothingOverflows) {
  int refused = 0, counted = 0;
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    uint64_t index = 0;
    const auto size = [&](double decades) {
      return static_cast<int64_t>(std::pow(10.0, decades * random_uniform(seed, 3, index++)));
    };
    LayerShape layer;
    layer.batch = size(18);
    layer.seq = 2 * size(12);
    layer.heads = 2 * size(4);
    layer.model_dim = layer.heads * size(14);
    layer.hidden = 2 * size(18);
    layer.experts = 2 * size(15);
    layer.top_k = 1;
    if (seed % 3 == 0) layer.capacity_factor = std::pow(10.0, 300 * random_uniform(seed, 3, index++));
    if (seed % 2 == 0) layer.batch = layer.experts = 2;  // else hardly any is counted
    try {
      const LayerCase c = two_nodes(layer);
      const double dim = static_cast<double>(layer.model_dim), experts = static_cast<double>(c.layer.experts);
      EXPECT_NEAR(static_cast<double>(gradient_bytes(c)) / (4 * dim * dim / 2 * 4), 1, 1e-12);
      EXPECT_NEAR(static_cast<double>(expert_gradient_bytes(c)) /
                      (experts / 2 * 2 * dim * static_cast<double>(layer.hidden) / 2 * 4),
                  1, 1e-12);
      EXPECT_GE(capacity_rows(c), 1);
      for (const double bytes : {mp_bytes(c), attention_flops(c), moe_volumes(c, 1.0).expert_flops}) {
        EXPECT_GT(bytes, 0);
        EXPECT_LT(bytes, 1e40);
      }
      ++counted;
    } catch (const BadInput& error) {
      EXPECT_NE(std::string_view(error.what()).find("expected"), std::string_view::npos) << error.what();
      ++refused;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(counted, 500);
}

}  // namespace
}  // namespace moe
