#include "tests/stack/local_stacks.h"

namespace moe {

LocalStacks::LocalStacks(const StackShape& shape, const LayerSeed& seed, const LayersOn& on)
    : world_(shape.shape.parallel.ranks()),
      device_(on.streams()),
      layer_devices_(static_cast<size_t>(shape.shape.parallel.ranks())),
      owned_(layer_devices_.size()) {
  world_.run([&](int rank) {
    const auto world = world_.communicator(rank);
    if (on.layer) layer_devices_[rank] = on.layer();
    owned_[rank] =
        std::make_unique<LayerStack>(shape, rank, seed, *world, on.layer ? *layer_devices_[rank] : cpu_layer_device());
  });
  for (const auto& stack : owned_) ranks_.push_back(stack.get());
}

std::vector<RankCells> LocalStacks::cells() const {
  std::vector<RankCells> all;
  for (const LayerStack* rank : ranks_) all.push_back(rank->cells());
  return all;
}

void LocalStacks::poison() {
  for (const RankCells& rank : cells())
    for (const auto& layer : rank.layers)
      for (MoeLayer* cell : layer) moe::poison(*cell);
}

void LocalStacks::run(const Plan& plan, int passes, const Wrap& wrap) {
  world_.run([&](int rank) {
    LayerStack& stack = *ranks_[rank];
    StackBinding binding(stack, plan, *device_);
    Executor executor(*device_, plan.structure, stack.stage());
    const std::unique_ptr<Binding> wrapped = wrap ? wrap(binding, rank) : nullptr;
    for (int i = 0; i < passes; ++i) executor.run(wrapped ? *wrapped : binding);
  });
}

}  // namespace moe
