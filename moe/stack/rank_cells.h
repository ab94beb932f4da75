#pragma once
// Shows the layers that one rank ran to what proves, dumps and counts: of a stack its stage's, each once for every
// micro-batch; a layer alone is the only cell.
#include <vector>

#include "moe/layer/moe_layer.h"

namespace moe {

struct RankCells {
  LayerCases cases;  // of all layers of the stack, among the ranks of a stage
  int first_layer = 0;
  std::vector<std::vector<MoeLayer*>> layers;  // [layer from the first on][micro-batch]

  explicit RankCells(MoeLayer& layer) : cases(layer.shape().shape, {}), layers{{&layer}} {}
  RankCells(LayerCases of_all, int first, std::vector<std::vector<MoeLayer*>> all)
      : cases(std::move(of_all)), first_layer(first), layers(std::move(all)) {}

  MoeLayer& front() const { return *layers.front().front(); }
  /// Returns any cell with experts; where the rank has none, the front.
  MoeLayer& any() const {
    for (const auto& layer : layers)
      if (!layer.front()->shape().is_dense()) return *layer.front();
    return front();
  }
  bool has(int layer) const { return layer >= first_layer && layer < first_layer + static_cast<int>(layers.size()); }
  MoeLayer& at(int layer, int micro_batch) const {
    return *layers.at(static_cast<size_t>(layer - first_layer)).at(static_cast<size_t>(micro_batch));
  }
};

}  // namespace moe
