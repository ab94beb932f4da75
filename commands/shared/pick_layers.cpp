#include "commands/shared/pick_layers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe::commands {
namespace {

// Returns "batch 1", "seq 256", ..., and all pairs of them. A pick should share as few of these as possible with the
// earlier picks.
std::vector<std::string> traits_of(const LayerShape& l) {
  const double scale = static_cast<double>(l.hidden) / static_cast<double>(l.model_dim);
  std::vector<std::string> traits{
      fmt::format("batch {}", l.batch),     fmt::format("seq {}", l.seq),
      fmt::format("dim {}", l.model_dim),   fmt::format("scale {:.3f}", scale),
      fmt::format("heads {}", l.heads),     fmt::format("f {}", l.capacity_factor.value_or(0)),
      fmt::format("ffn {}", name_of(l.ffn))};
  const size_t singles = traits.size();
  for (size_t i = 0; i < singles; ++i)
    for (size_t j = i + 1; j < singles; ++j) traits.push_back(traits[i] + ", " + traits[j]);
  return traits;
}

}  // namespace

std::vector<size_t> pick_layers(std::span<const LayerShape> layers, int count) {
  struct Unpicked {
    size_t layer;
    std::vector<int*> uses;  // how often the earlier picks have its traits
  };
  std::map<std::string, int> used;
  std::vector<Unpicked> open;
  for (size_t i = 0; i < layers.size(); ++i) {
    open.push_back({i, {}});
    for (const std::string& trait : traits_of(layers[i])) open.back().uses.push_back(&used[trait]);
  }
  std::vector<size_t> picked;
  while (!open.empty() && picked.size() < static_cast<size_t>(count)) {
    const auto repeats = [](const Unpicked& c) {
      int sum = 0;
      for (const int* uses : c.uses) sum += *uses;
      return sum;
    };
    const auto next = std::ranges::min_element(open, {}, repeats);  // the first one on ties
    for (int* uses : next->uses) ++*uses;
    picked.push_back(next->layer);
    open.erase(next);
  }
  std::ranges::sort(picked);
  return picked;
}

namespace {

constexpr int64_t kGrain = 16;

struct Extent {
  int64_t min = 0, max = 0;
};

Extent range_of(const Grid& grid, int64_t LayerShape::*size) {
  const auto [least, most] =
      std::ranges::minmax_element(grid.layers, {}, [size](const GridLayer& layer) { return layer.shape.*size; });
  return {least->shape.*size, most->shape.*size};
}

// Returns a multiple of `grain` in the range if there is one; else the least value of the range.
int64_t drawn(Extent range, int64_t grain, double uniform) {
  const double at = static_cast<double>(range.min) *
                    std::pow(static_cast<double>(range.max) / static_cast<double>(range.min), uniform);
  const int64_t least = (range.min + grain - 1) / grain * grain, most = range.max / grain * grain;
  if (least > most) return range.min;
  return std::clamp(std::llround(at / static_cast<double>(grain)) * grain, static_cast<long long>(least),
                    static_cast<long long>(most));
}

}  // namespace

std::vector<GridLayer> draw_layers(const Grid& grid, int count, uint64_t seed) {
  const Extent batch = range_of(grid, &LayerShape::batch), seq = range_of(grid, &LayerShape::seq),
               model_dim = range_of(grid, &LayerShape::model_dim), hidden = range_of(grid, &LayerShape::hidden);
  const uint64_t stream = random_stream_id("drawn layers");
  std::vector<GridLayer> layers;
  for (int i = 0; i < count; ++i) {
    uint64_t drawn_so_far = 0;
    const auto uniform = [&] { return random_uniform(seed, stream, 16 * static_cast<uint64_t>(i) + drawn_so_far++); };
    GridLayer layer = grid.layers[static_cast<size_t>(uniform() * static_cast<double>(grid.layers.size()))];
    LayerShape& shape = layer.shape;
    const int64_t block = std::lcm(kGrain, block_of(shape.ffn)), grain = std::lcm(block, shape.heads);
    shape.batch = drawn(batch, batch.min, uniform());
    shape.seq = drawn(seq, kGrain, uniform());
    shape.model_dim = drawn(model_dim, grain, uniform());
    shape.hidden = drawn(hidden, block, uniform());
    layer.name = fmt::format("drawn-{}-B{}-h{}-L{}-M{}-H{}-{}", i + 1, shape.batch, shape.heads, shape.seq,
                             shape.model_dim, shape.hidden, name_of(shape.ffn));
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace moe::commands
