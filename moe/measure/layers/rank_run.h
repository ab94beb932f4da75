#pragma once
// One schedule on one rank, ready to run: a layer, or this rank's stage of a stack, with what its plan binds to it.
#include <memory>

#include "moe/exec/executor.h"
#include "moe/layer/workload.h"
#include "moe/stack/layer_stack.h"

namespace moe {

/// Says whether the plan is of one layer, once; else it is a stack's.
bool one_layer(const Plan& plan);

/// Throws Unsupported naming what of a plan no layer and no stack can run.
void require_runs(const Plan& plan);

class RankRun {
 public:
  struct Setup {
    DeviceKind kind = DeviceKind::cpu;
    int place = 0;  // of the rank among those of its machine, which have a device each
    uint64_t seed = 1;
    const Workload& workload;
  };
  /// Blocking: every rank of `world` makes its own. Throws as MoeLayer and LayerStack do.
  RankRun(const Plan& plan, Communicator& world, const Setup& setup);

  Device& device() const { return *device_; }
  /// One pass (Executor::run).
  const RunTimes& pass(const std::vector<double>& at_least_s = {}, const Contended& contended = {}) {
    return executor_->run(*binding_, at_least_s, std::nullopt, contended);
  }
  RankCells cells() const { return stack_ ? stack_->cells() : RankCells(*layer_); }
  /// Enqueues the sums that no plan carries (MoeLayer::finish_gradients).
  void finish_gradients(Stream& stream) {
    stack_ ? stack_->finish_gradients(stream) : layer_->finish_gradients(stream);
  }

 private:
  // In the order in which they need each other.
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: the CPU's
  std::unique_ptr<MoeLayer> layer_;            // one of these two
  std::unique_ptr<LayerStack> stack_;
  std::unique_ptr<Binding> binding_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace moe
