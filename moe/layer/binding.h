#pragma once
// Gives a plan's tasks their meaning on one rank of a layer. Everything that depends on the plan (layouts of both
// degrees, names, gradient slices) is made in the constructor; issue() only enqueues.
//
// Steady state (a layer stands for one of many alike): the gradient tasks of a pass sum, over DP, the dense gradients
// that the pass before made, in place. So after two passes over the same input the layer's gradients are whole but for
// MoeLayer::finish_gradients. Before the first pass they are zeros.
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/layer/moe_layer.h"

namespace moe {

/// Throws Unsupported naming what of a plan the layer can't run yet: another flow than FSMoE's, several layers, a stage
/// that is not cut as its phase's degree says, the experts' gradients as a task.
void require_runnable(const Plan& plan);

class LayerBinding : public Binding {
 public:
  /// `layer` must outlive it; the plan's structure is shared. Throws WrongResult naming what differs unless the plan is
  /// of the layer's case, whole (forward and backward), and of one layer.
  LayerBinding(MoeLayer& layer, const Plan& plan);

  void issue(const Task& task, Stream& stream, Pace pace) override;

 private:
  void compute(const Task& task);
  void expert(const Task& task);
  void exchange(const Task& task, CommCall call);
  const WireLayout& layout(Phase phase) const { return phase == Phase::forward ? forward_ : backward_; }
  PhaseBuffers& buffers(Phase phase) const;

  MoeLayer& layer_;
  Plan plan_;
  WireLayout forward_, backward_;
  std::vector<std::string> names_;  // of the tasks: communicators keep views of them
  int first_expert_ = -1;           // the backward's first expert task, which overwrites the weights' gradients
};

}  // namespace moe
