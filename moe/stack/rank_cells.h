#pragma once
// Shows the layers that one rank ran to what proves, dumps and counts: of a stack its stage's, each once for every
// micro-batch; a layer alone is the only cell.
#include <algorithm>
#include <vector>

#include "moe/layer/moe_layer.h"

namespace moe {

struct RankCells {
  LayerCases cases;                            // of all layers of the stack, among the ranks of a stage
  std::vector<int> numbers{0};                 // of the rank's layers, ascending
  std::vector<std::vector<MoeLayer*>> layers;  // [place in numbers][micro-batch]

  explicit RankCells(MoeLayer& layer) : cases(layer.shape().shape, {}), layers{{&layer}} {}
  RankCells(LayerCases of_all, std::vector<int> of_rank, std::vector<std::vector<MoeLayer*>> all)
      : cases(std::move(of_all)), numbers(std::move(of_rank)), layers(std::move(all)) {}

  MoeLayer& front() const { return *layers.front().front(); }
  /// Returns any cell with experts; where the rank has none, the front.
  MoeLayer& any() const {
    for (const auto& layer : layers)
      if (!layer.front()->shape().is_dense()) return *layer.front();
    return front();
  }
  bool has(int layer) const { return std::ranges::binary_search(numbers, layer); }
  MoeLayer& at(int layer, int micro_batch) const {
    const auto place = std::ranges::lower_bound(numbers, layer) - numbers.begin();
    return *layers.at(static_cast<size_t>(place)).at(static_cast<size_t>(micro_batch));
  }
};

}  // namespace moe
