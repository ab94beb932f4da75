#include <algorithm>
#include <gtest/gtest.h>
#include <string>

#include "tests/base/scratch.h"
#include "tests/shape/published_configs.h"
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
  l.mp = 2;
  l.ep = 2;
  l.esp = 1;
  commands::ModelFlags flags;
  flags.layers = 2;
  flags.micro_batches = 3;
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

// By hand, of gpt-oss-20b's card: 3.61 B weights of a token, and scores over L tokens in 12 layers, over 128 in 12.
TEST(Rates, CountTheWindowOfEachLayer) {
  const Scratch scratch;
  const PublishedConfig& gpt_oss =
      *std::ranges::find(kPublishedConfigs, std::string_view("gpt-oss-20b"), &PublishedConfig::name);
  commands::ModelFlags flags;
  flags.model = scratch.write("config.json", std::string(gpt_oss.config));
  const Profile cluster = find_profile("h100-8");
  for (const int64_t seq : {4096, 32768}) {
    commands::Selection selection;
    selection.layer.fields.set(&LayerShape::seq, seq);
    const commands::ChosenModel chosen = commands::chosen_model(flags, selection, cluster);
    EXPECT_TRUE(chosen.replaced_mixers.empty());
    EXPECT_EQ(windowed_pattern(chosen.model.whole, 24), "101010101010101010101010");
    const std::optional<StepRates> rates = rates_of(chosen, cluster, 1);
    ASSERT_TRUE(rates);
    const double scores = 12 * 4 * 64 * 64 * static_cast<double>(seq + 128);
    EXPECT_NEAR(rates->flops_per_s / rates->tokens_per_s / (3 * (2 * 3.61e9 + scores)), 1, 5e-3) << seq;
  }
}

}  // namespace
}  // namespace moe::tuner
