#pragma once
// Does attention's tasks, with its norm and residual, and the collectives over MP that bring its tokens together and
// apart.
#include "moe/exec/executor.h"
#include "moe/layer/layer_state.h"

namespace moe::layer {

class AttentionPart {
 public:
  explicit AttentionPart(LayerState& layer) : layer_(layer) {}

  /// Computes attention, on its task's stream; of attention_dx the half of a backward.
  void attention(const Task& task);
  /// Computes the other half.
  void attention_dw(const Task& task);

  // These enqueue a collective on the call's stream.
  void mp_allgather(const Task& task, CommCall call);
  void mp_reducescatter(const Task& task, CommCall call);
  void mp_allreduce(const Task& task, CommCall call);

 private:
  Math& math() const { return layer_.math(); }
  const RankShape& rank() const { return layer_.shape; }
  TensorView read() const;

  LayerState& layer_;
};

}  // namespace moe::layer
