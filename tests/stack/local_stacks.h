#pragma once
// All ranks of a stack as threads of this process, for tests.
#include <functional>
#include <memory>
#include <vector>

#include "moe/comm/local/local_world.h"
#include "moe/stack/stack_binding.h"
#include "tests/layer/local_layers.h"

namespace moe {

class LocalStacks {
 public:
  LocalStacks(const StackShape& shape, const LayerSeed& seed, const LayersOn& on = {});
  /// Overwrites outputs and gradients by NaN, so that none can be left from a run before.
  void poison();
  /// Makes what runs in the place of the stack's binding on a rank.
  using Wrap = std::function<std::unique_ptr<Binding>(Binding&, int rank)>;
  /// Runs `passes` passes.
  void run(const Plan& plan, int passes = 1, const Wrap& wrap = {});

  std::span<LayerStack* const> ranks() const { return ranks_; }
  std::vector<RankCells> cells() const;

 private:
  LocalWorld world_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<LayerDevice>> layer_devices_;
  std::vector<std::unique_ptr<LayerStack>> owned_;
  std::vector<LayerStack*> ranks_;
};

}  // namespace moe
