#pragma once
// Does the shared expert's tasks: every token of the MP group passes this rank's shard of it, whose outputs are partial
// sums over that group.
#include "moe/layer/binding/wire_hooks.h"

namespace moe::layer {

class SharedPart {
 public:
  explicit SharedPart(LayerState& layer) : layer_(layer), hooks_(layer) {}

  // These enqueue a collective on the call's stream; the expert computes on its task's.
  void allgather(const Task& task, CommCall call);
  void shared(const Task& task);
  void reducescatter(const Task& task, CommCall call);
  void allreduce(const Task& task, CommCall call);

  /// Adds the sum over MP, of this rank's own tokens, to those of the tokens that the rank gates: the output's in the
  /// forward, the gradient's in the backward. Does nothing where the layer has no shared expert.
  void add_to(Phase phase, TensorView gated) const;

 private:
  /// Shows what the MoE part begins with, of the tokens that the MP group shares or this rank has alone.
  TensorView given(Phase phase) const;
  TensorView of_own(TensorView gated) const;

  LayerState& layer_;
  WireHooks hooks_;
};

}  // namespace moe::layer
