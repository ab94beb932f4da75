#include "moe/stack/stack_errors.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/plan/pipeline.h"

namespace moe {

std::vector<int32_t> own_choices(const RankCells& rank) {
  std::vector<int32_t> all;
  for (const auto& layer : rank.layers)
    for (const MoeLayer* cell : layer) {
      const auto own = cell->own_choices();
      all.insert(all.end(), own.begin(), own.end());
    }
  return all;
}

StackChoices join_choices(const std::vector<std::vector<int32_t>>& ranks, const StackShape& shape) {
  const int layers = shape.layers, micro_batches = shape.micro_batches, stages = shape.shape.parallel.pp;
  StackChoices all(static_cast<size_t>(layers), std::vector<std::vector<int32_t>>(static_cast<size_t>(micro_batches)));
  const size_t of_stage = ranks.size() / static_cast<size_t>(stages);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<int> own = layers_of_stage(shape.split(), static_cast<int>(rank / of_stage));
    const auto dense = std::ranges::count_if(own, [&](int layer) { return shape.dense.has(layer); });
    const std::ptrdiff_t cells = (std::ssize(own) - dense) * micro_batches;
    const auto each = static_cast<std::ptrdiff_t>(ranks[rank].size()) / std::max<std::ptrdiff_t>(1, cells);
    auto from = ranks[rank].begin();
    for (const int layer : own)
      if (!shape.dense.has(layer))
        for (auto& to : all[layer]) to.insert(to.end(), from, from + each), from += each;
  }
  return all;
}

double tolerance_of(const RankCells& rank) {
  double tolerance = tolerance_of(rank.cases.moe().layer);
  for (const auto& layer : rank.layers) tolerance = std::max(tolerance, tolerance_of(*layer.front()));
  return tolerance;
}

std::function<LayerChoices(int layer, int micro_batch)> choices_to_follow(const RankCells& rank,
                                                                          const StackChoices& choices) {
  return [&choices, tie = tolerance_of(rank), preset = rank.front().routing().preset](int layer, int micro_batch) {
    return LayerChoices{choices[layer][micro_batch], tie, preset};
  };
}

StackReference reference_stack(const RankCells& rank, const StackChoices& choices) {
  const MoeLayer& any = rank.front();
  LayerSeed seed = any.seed();
  seed.layer = seed.micro_batch = 0;
  return reference_stack(rank.cases, static_cast<int>(choices.size()), static_cast<int>(choices.front().size()), seed,
                         choices_to_follow(rank, choices));
}

std::vector<TensorError> stack_errors(std::span<const RankCells> ranks, const StackReference& reference) {
  std::vector<TensorError> all;
  const bool one = reference.size() == 1 && reference.front().size() == 1;
  for (size_t layer = 0; layer < reference.size(); ++layer)
    for (size_t micro_batch = 0; micro_batch < reference[layer].size(); ++micro_batch) {
      std::vector<MoeLayer*> cells;
      for (const RankCells& rank : ranks)
        if (rank.has(static_cast<int>(layer)))
          cells.push_back(&rank.at(static_cast<int>(layer), static_cast<int>(micro_batch)));
      if (cells.empty()) continue;
      for (TensorError& e : layer_errors(cells, reference[layer][micro_batch]))
        all.push_back(
            {one ? e.tensor : fmt::format("layer {}, micro-batch {}: {}", layer, micro_batch, e.tensor), e.error});
    }
  return all;
}

std::vector<TensorError> verify_stack(std::span<const RankCells> ranks, const StackReference& reference) {
  std::vector<TensorError> errors = stack_errors(ranks, reference);
  require_small(errors, tolerance_of(ranks.front()), ranks.front().cases.moe().layer);
  return errors;
}

}  // namespace moe
