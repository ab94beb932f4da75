#include "commands/shared/pick_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "moe/shape/grid.h"

namespace moe::commands {
namespace {

TEST(PickLayers, CoverTheGridInItsOrder) {
  std::vector<LayerShape> layers;
  for (const GridLayer& layer : find_grid("fsmoe-b").layers) layers.push_back(layer.shape);
  const std::vector<size_t> picked = pick_layers(layers, 6);
  ASSERT_EQ(picked.size(), 6U);
  EXPECT_TRUE(std::ranges::is_sorted(picked));
  std::set<int64_t> batches, seqs, dims;
  std::set<std::optional<double>> factors;
  std::set<Ffn> ffns;
  for (const size_t i : picked) {
    batches.insert(layers[i].batch);
    seqs.insert(layers[i].seq);
    dims.insert(layers[i].model_dim);
    factors.insert(layers[i].capacity_factor);
    ffns.insert(layers[i].ffn);
  }
  EXPECT_EQ(batches.size(), 3U);
  EXPECT_EQ(seqs.size(), 3U);
  EXPECT_EQ(dims.size(), 3U);
  EXPECT_EQ(factors.size(), 3U);
  EXPECT_EQ(ffns.size(), 2U);
}

TEST(PickLayers, AreAllWhereThereAreFewer) {
  const std::vector<LayerShape> layers(3);
  EXPECT_EQ(pick_layers(layers, 5), (std::vector<size_t>{0, 1, 2}));
  EXPECT_TRUE(pick_layers({}, 5).empty());
}

}  // namespace
}  // namespace moe::commands
