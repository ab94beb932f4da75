#pragma once
// Does a dense layer's feed-forward, with its norm and residual, and the collectives over MP that bring its tokens
// together and apart, as attention's are.
#include "moe/exec/executor.h"
#include "moe/layer/layer_state.h"

namespace moe::layer {

class FfnPart {
 public:
  explicit FfnPart(LayerState& layer) : layer_(layer) {}

  /// Computes the feed-forward, on its task's stream.
  void ffn(const Task& task);

  // These enqueue a collective on the call's stream.
  void allgather(const Task& task, CommCall call);
  void reducescatter(const Task& task, CommCall call);
  void allreduce(const Task& task, CommCall call);

 private:
  LayerState& layer_;
};

}  // namespace moe::layer
