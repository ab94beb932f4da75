#include "moe/stack/stack_errors.h"

#include <fmt/format.h>

namespace moe {
namespace {

// Calls body(layer, micro-batch, the cells of its stage's ranks that are here).
template <class Body>
void for_each_cell(std::span<LayerStack* const> ranks, Body body) {
  const StackShape& shape = ranks.front()->shape();
  for (int layer = 0; layer < shape.layers; ++layer)
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      std::vector<MoeLayer*> cells;
      for (LayerStack* rank : ranks)
        if (layer >= rank->first_layer() && layer < rank->last_layer())
          cells.push_back(&rank->cell(layer, micro_batch));
      if (!cells.empty()) body(layer, micro_batch, cells);
    }
}

}  // namespace

std::vector<std::vector<std::vector<int32_t>>> choices_of(std::span<LayerStack* const> ranks) {
  const StackShape& shape = ranks.front()->shape();
  std::vector<std::vector<std::vector<int32_t>>> all(
      static_cast<size_t>(shape.layers), std::vector<std::vector<int32_t>>(static_cast<size_t>(shape.micro_batches)));
  for_each_cell(ranks, [&](int layer, int micro_batch, const std::vector<MoeLayer*>& cells) {
    all[static_cast<size_t>(layer)][static_cast<size_t>(micro_batch)] = choices_of(cells);
  });
  return all;
}

std::vector<TensorError> stack_errors(std::span<LayerStack* const> ranks, const StackReference& reference) {
  std::vector<TensorError> all;
  for_each_cell(ranks, [&](int layer, int micro_batch, const std::vector<MoeLayer*>& cells) {
    for (TensorError& error :
         layer_errors(cells, reference[static_cast<size_t>(layer)][static_cast<size_t>(micro_batch)]))
      all.push_back({fmt::format("layer {}, micro-batch {}: {}", layer, micro_batch, error.tensor), error.error});
  });
  return all;
}

}  // namespace moe
