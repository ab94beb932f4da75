#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <span>

#include "commands/shared/pick_layers.h"

namespace moe::commands {
namespace {

bool holds(const Grid& grid, const LayerShape& shape) {
  return std::ranges::find(grid.layers, shape, &GridLayer::shape) != grid.layers.end();
}

TEST(DrawLayers, LieInsideTheGridAndAreMostlyNotOfIt) {
  for (const char* name : {"host", "processes", "fsmoe-b", "parm-a"}) {
    const Grid grid = find_grid(name);
    int inside = 0;
    std::set<std::string> names;
    for (const GridLayer& layer : draw_layers(grid, 200, 3)) {
      names.insert(layer.name);
      inside += holds(grid, layer.shape);
      for (auto size : {&LayerShape::batch, &LayerShape::seq, &LayerShape::model_dim, &LayerShape::hidden}) {
        const auto within = [&](const GridLayer& l) { return l.shape.*size <= layer.shape.*size; };
        const auto beyond = [&](const GridLayer& l) { return l.shape.*size >= layer.shape.*size; };
        EXPECT_TRUE(std::ranges::any_of(grid.layers, within) && std::ranges::any_of(grid.layers, beyond)) << layer.name;
      }
      EXPECT_EQ(layer.shape.model_dim % layer.shape.heads, 0) << layer.name;
      // What was not drawn is a layer's of the grid.
      EXPECT_TRUE(std::ranges::any_of(grid.layers, [&](const GridLayer& l) {
        LayerShape same = layer.shape;
        same.batch = l.shape.batch;
        same.seq = l.shape.seq;
        same.model_dim = l.shape.model_dim;
        same.hidden = l.shape.hidden;
        return same == l.shape;
      })) << layer.name;
    }
    EXPECT_EQ(names.size(), 200U) << name;
    EXPECT_LT(inside, 100) << name;
  }
}

TEST(DrawLayers, FollowTheSeedAlone) {
  const Grid grid = find_grid("host");
  const auto shapes = [&](int count, uint64_t seed) {
    std::vector<LayerShape> drawn;
    for (const GridLayer& layer : draw_layers(grid, count, seed)) drawn.push_back(layer.shape);
    return drawn;
  };
  const std::vector<LayerShape> first = shapes(20, 7), more = shapes(40, 7);
  EXPECT_TRUE(std::ranges::equal(first, std::span(more).first(20)));
  EXPECT_NE(first, shapes(20, 8));
}

}  // namespace
}  // namespace moe::commands
