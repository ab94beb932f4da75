#pragma once
// Does the dense part's tasks behind attention: gate with its norm and residual, order and i-order, and the collectives
// that bring tokens together and apart.
#include "moe/layer/binding/bound_plan.h"
#include "moe/layer/binding/shared_part.h"
#include "moe/layer/binding/wire_hooks.h"

namespace moe::layer {

class DensePart {
 public:
  DensePart(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan), hooks_(layer), shared_(layer) {}

  // These compute, on their task's stream.
  void gate(const Task& task);
  void order(const Task& task);
  void i_order(const Task& task);

  // These enqueue a collective on the call's stream.
  void tokens_allgather(const Task& task, CommCall call);
  void tokens_reducescatter(const Task& task, CommCall call);

  /// Enqueues, after a forward's gate, the sum over all ranks of what the auxiliary losses count.
  void sum_statistics(Stream& stream);

 private:
  void gate_backward(Phase phase);
  void add_residual_gradient(TensorView d);
  /// Returns what i_order reads in the forward, and order in the backward.
  RowsView home_rows(Phase phase);
  Math& math() const { return layer_.math(); }
  const RankShape& rank() const { return layer_.shape; }

  LayerState& layer_;
  BoundPlan& plan_;
  WireHooks hooks_;
  SharedPart shared_;
};

}  // namespace moe::layer
