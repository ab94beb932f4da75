#include <gtest/gtest.h>

#include "tuner/answer/ranking.h"

namespace moe::tuner {
namespace {

// A token has 4 M^2 + 2 L M of attention, M E of the gate and 2 k M H of the experts in each of two layers, and M V of
// the output projection: 6 FLOPs each, forward and backward.
TEST(Rates, AreOfTokensAndOfTheModelsFlops) {
  commands::Selection selection;
  commands::LayerFlags& l = selection.layer;
  l.fields.set(&LayerShape::batch, 2);
  l.fields.set(&LayerShape::seq, 128);
  l.fields.set(&LayerShape::model_dim, 256);
  l.fields.set(&LayerShape::hidden, 512);
  l.fields.set(&LayerShape::heads, 4);
  l.fields.set(&LayerShape::experts, 8);
  l.fields.set(&LayerShape::top_k, 2);
  l.mp = 2, l.ep = 2, l.esp = 1;
  commands::ModelFlags flags;
  flags.layers = 2, flags.micro_batches = 3;
  Profile cluster;
  cluster.ranks_per_node = 4;
  commands::ChosenModel chosen = commands::chosen_model(flags, selection, cluster);
  EXPECT_FALSE(rates_of(chosen, cluster, 0.5)) << "of no model";
  chosen.name = "small";
  chosen.vocabulary = 1000;
  const std::optional<StepRates> rates = rates_of(chosen, cluster, 0.5);
  ASSERT_TRUE(rates);
  EXPECT_DOUBLE_EQ(rates->tokens_per_s, 2 * 128 * 2 * 3 / 4 / 0.5);
  const double macs = 2 * (4 * 256 * 256 + 2 * 128 * 256 + 256 * 8 + 2 * 2 * 256 * 512) + 256 * 1000;
  EXPECT_DOUBLE_EQ(rates->flops_per_s, 768 * 6 * macs);
  EXPECT_FALSE(rates->utilisation) << "no peak is known";

  cluster.gpu = GpuModel{.name = "small", .tensor_flops_per_s = 1e12};
  EXPECT_FALSE(rates_of(chosen, cluster, 0.5)->utilisation) << "the peak is of 16 bits";
  chosen.model.shape.layer.dtype = DType::bfloat16;
  EXPECT_DOUBLE_EQ(rates_of(chosen, cluster, 0.5)->utilisation.value(), 768 * 6 * macs / 1e12);
}

}  // namespace
}  // namespace moe::tuner
