#pragma once
// All ranks of a layer as threads of this process, for tests: made once, then run under any plan of the same case.
#include <functional>
#include <memory>
#include <vector>

#include "moe/comm/local/local_world.h"
#include "moe/exec/executor.h"
#include "moe/layer/verify.h"
#include "moe/schedule/schedule.h"

namespace moe {

/// Makes the streams, and once for each rank what its layer runs on; null: the CPU.
struct LayersOn {
  std::unique_ptr<Device> (*streams)() = make_cpu_device;
  std::unique_ptr<LayerDevice> (*layer)() = nullptr;
};

/// Overwrites the layer's results by NaN, so that none can be left from a run before.
void poison(MoeLayer& layer);

class LocalLayers {
 public:
  LocalLayers(const LayerCase& shape, const LayerSeed& seed, Flow flow = Flow::sharded, const LayersOn& on = {});
  /// Overwrites every result by NaN, so that none can be left from a run before.
  void poison();
  /// Makes what runs in the place of the layer's binding on a rank.
  using Wrap = std::function<std::unique_ptr<Binding>(Binding&, int rank)>;
  /// Runs `passes` passes, then finish_gradients.
  void run(const Plan& plan, int passes = 2, const Wrap& wrap = {});
  /// Runs one forward alone.
  void forward(const Plan& plan) const;
  /// Runs the passes alone.
  void pass(const Plan& plan, int passes, const Wrap& wrap = {});

  std::span<MoeLayer* const> ranks() const { return ranks_; }
  /// Return the pairs without a row on all ranks, and the experts that no token chose.
  int64_t dropped() const;
  int64_t idle_experts() const;

 private:
  mutable LocalWorld world_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<LayerDevice>> layer_devices_;
  std::vector<std::unique_ptr<MoeLayer>> owned_;
  std::vector<MoeLayer*> ranks_;
};

/// Returns the plan of `schedule` at these degrees; where it puts gradients into the MoE part, `gar_share` of them.
Plan plan_for(const LayerCase& shape, std::string_view schedule, int degree_forward, int degree_backward,
              double gar_share = 0.3);

}  // namespace moe
