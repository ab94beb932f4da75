#pragma once
// The layers that one rank ran, as what proves, dumps and counts sees them: of a stack its stage's, each once for every
// micro-batch; a layer alone is the only cell.
#include <vector>

#include "moe/layer/moe_layer.h"

namespace moe {

struct RankCells {
  int first_layer = 0;
  std::vector<std::vector<MoeLayer*>> layers;  // [layer from the first on][micro-batch]

  explicit RankCells(MoeLayer& layer) : layers{{&layer}} {}
  RankCells(int first, std::vector<std::vector<MoeLayer*>> all) : first_layer(first), layers(std::move(all)) {}

  MoeLayer& front() const { return *layers.front().front(); }
  bool has(int layer) const { return layer >= first_layer && layer < first_layer + static_cast<int>(layers.size()); }
  MoeLayer& at(int layer, int micro_batch) const {
    return *layers.at(static_cast<size_t>(layer - first_layer)).at(static_cast<size_t>(micro_batch));
  }
};

}  // namespace moe
