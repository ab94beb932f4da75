#include "moe/shape/dense_layers.h"

#include <algorithm>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "moe/shape/volumes.h"

namespace moe {

int LayerSet::count(int first, int last) const {
  const auto at = [&](int layer) { return by_layer.begin() + std::min<std::ptrdiff_t>(layer, std::ssize(by_layer)); };
  return static_cast<int>(std::count(at(first), at(last), true));
}

LayerSet LayerSet::first(int layers) const {
  if (has_none(layers)) return {};
  LayerSet cut = *this;
  if (std::ssize(by_layer) > layers) cut.by_layer.resize(layers);
  return cut;
}

DenseLayers DenseLayers::first(int layers) const {
  if (has_none(layers)) return {};
  return {LayerSet::first(layers), hidden};
}

LayerSet whole_layers(std::string_view pattern, int layers) {
  LayerSet all;
  for (int layer = 0; layer < layers && !pattern.empty(); ++layer)
    all.by_layer.push_back(pattern[static_cast<size_t>(layer) % pattern.size()] == '0');
  return all.first(layers);
}

std::string windowed_pattern(const LayerSet& whole, int layers) {
  std::string pattern;
  for (int layer = 0; layer < layers && !whole.has_none(layers); ++layer) pattern += whole.has(layer) ? '0' : '1';
  return pattern;
}

DenseLayers DenseRule::expand(int layers) const {
  DenseLayers all{{std::vector<bool>(static_cast<size_t>(layers))}, hidden};
  for (int layer = 0; layer < layers; ++layer)
    all.by_layer[layer] = layer < first || (layer + 1) % every != 0 || std::ranges::find(listed, layer) != listed.end();
  return all.first(layers);
}

LayerCase dense_case(const LayerCase& shape, int64_t hidden) {
  LayerCase dense = shape;
  require<BadInput>(hidden % shape.parallel.mp == 0, "mp = {} does not divide dense_hidden = {}", shape.parallel.mp,
                    hidden);
  require_blocks(shape.layer.ffn, hidden, shape.parallel.mp, "dense_hidden", "mp");
  dense.layer.experts = 0;
  dense.layer.shared_hidden = hidden;
  const double bytes = static_cast<double>(gemms_of(shape.layer.ffn) * shape.layer.model_dim) *
                       static_cast<double>(hidden / shape.parallel.mp) * bytes_of(shape.layer.dtype);
  require<BadInput>(bytes <= static_cast<double>(kMaxBytes),
                    "dense_hidden: found {} of model-dim {}, {:.3g} bytes of weights on a rank, expected at most {}",
                    hidden, shape.layer.model_dim, bytes, kMaxBytes);
  return dense;
}

LayerCase whole_case(LayerCase shape) {
  shape.layer.window = 0;
  return shape;
}

LayerCases::LayerCases(const LayerCase& shape, DenseLayers dense, LayerSet whole)
    : layers_(std::move(dense)), whole_(std::move(whole)) {
  const LayerCase of_dense = layers_.hidden > 0 ? dense_case(shape, layers_.hidden) : shape;
  cases_ = {shape, of_dense, whole_case(shape), whole_case(of_dense)};
}

std::string count_layers(int layers, const DenseLayers& dense) {
  const std::string all = counted(layers, "layer");
  return dense.has_none(layers) ? all : fmt::format("{}, {} MoE", all, layers - dense.count(0, layers));
}

std::string describe_layers(int layers, const DenseLayers& dense, const LayerSet& whole, const LayerShape& layer) {
  std::string text = fmt::format("{} of {}", count_layers(layers, dense), describe(layer));
  if (!dense.has_none(layers)) text += fmt::format(" and {} dense of H{}", dense.count(0, layers), dense.hidden);
  if (!whole.has_none(layers))
    text += fmt::format(", a window of {} tokens in {} of them", layer.window, layers - whole.count(0, layers));
  return text;
}

}  // namespace moe
