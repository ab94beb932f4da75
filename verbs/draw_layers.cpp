#include "verbs/draw_layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe::verbs {
namespace {

constexpr int64_t kGrain = 16;

struct Extent {
  int64_t least = 0, most = 0;
};

Extent range_of(const Grid& grid, int64_t LayerShape::*size) {
  const auto [least, most] =
      std::ranges::minmax_element(grid.layers, {}, [size](const GridLayer& layer) { return layer.shape.*size; });
  return {least->shape.*size, most->shape.*size};
}

// Returns a multiple of `grain` in the range, where it has one; else its least.
int64_t drawn(Extent range, int64_t grain, double uniform) {
  const double at = static_cast<double>(range.least) *
                    std::pow(static_cast<double>(range.most) / static_cast<double>(range.least), uniform);
  const int64_t least = (range.least + grain - 1) / grain * grain, most = range.most / grain * grain;
  if (least > most) return range.least;
  return std::clamp(std::llround(at / static_cast<double>(grain)) * grain, static_cast<long long>(least),
                    static_cast<long long>(most));
}

}  // namespace

std::vector<GridLayer> draw_layers(const Grid& grid, int count, uint64_t seed) {
  const Extent batch = range_of(grid, &LayerShape::batch), seq = range_of(grid, &LayerShape::seq),
               model_dim = range_of(grid, &LayerShape::model_dim), hidden = range_of(grid, &LayerShape::hidden);
  const uint64_t stream = stream_of("drawn layers");
  std::vector<GridLayer> layers;
  for (int i = 0; i < count; ++i) {
    uint64_t drawn_so_far = 0;
    const auto uniform = [&] { return random_uniform(seed, stream, 16 * static_cast<uint64_t>(i) + drawn_so_far++); };
    GridLayer layer = grid.layers[static_cast<size_t>(uniform() * static_cast<double>(grid.layers.size()))];
    LayerShape& shape = layer.shape;
    const int64_t block = std::lcm(kGrain, block_of(shape.ffn)), grain = std::lcm(block, shape.heads);
    shape.batch = drawn(batch, batch.least, uniform());
    shape.seq = drawn(seq, kGrain, uniform());
    shape.model_dim = drawn(model_dim, grain, uniform());
    shape.hidden = drawn(hidden, block, uniform());
    layer.name = fmt::format("drawn-{}-B{}-h{}-L{}-M{}-H{}-{}", i + 1, shape.batch, shape.heads, shape.seq,
                             shape.model_dim, shape.hidden, name_of(shape.ffn));
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace moe::verbs
