#pragma once
// The parts of a layer that a plan's tasks call: attention, feed-forward, shared expert, experts, dense layers.
#include "moe/base/enum_array.h"
#include "moe/exec/executor.h"
#include "moe/layer/binding/bound_plan.h"
#include "moe/layer/binding/row_exchange.h"
#include "moe/layer/moe_layer.h"

namespace moe::layer {

/// Attention's tasks, with its norm and residual, and the collectives over MP that bring its tokens together and
/// apart.
class AttentionPart {
 public:
  explicit AttentionPart(LayerState& layer) : layer_(layer) {}

  /// Computes attention, on its task's stream; of attention_dx the half of a backward.
  void attention(const Task& task);
  /// Computes the other half.
  void attention_dw(const Task& task);
  /// Computes keys and values of the rank's tokens, under context parallelism.
  void keys_values(const Task& task);

  // These enqueue a collective on the call's stream.
  void mp_allgather(const Task& task, CommCall call);
  void mp_reducescatter(const Task& task, CommCall call);
  void mp_allreduce(const Task& task, CommCall call);
  void cp_allgather(const Task& task, CommCall call);
  void cp_reducescatter(const Task& task, CommCall call);

 private:
  Math& math() const { return layer_.math(); }
  const RankShape& rank() const { return layer_.shape; }
  bool shares() const { return rank().shape.parallel.cp > 1; }
  TensorView read() const;
  void end_backward();
  void add_residual(TensorView from, TensorView to) const;

  LayerState& layer_;
};

/// A dense layer's feed-forward, with its norm and residual, and the collectives over MP that bring its tokens
/// together and apart, as attention's are.
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

/// The shared expert's tasks: every token of the MP group passes this rank's shard of it, whose outputs are
/// partial sums over that group.
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

/// The experts' tasks: brings rows from where they were gathered to where the experts compute, and back.
class ExpertPart {
 public:
  ExpertPart(LayerState& layer, BoundPlan& plan);

  /// Brings the rows of the task's chunk to the experts, where the plan has a task for that.
  void copy(const Task& task);
  /// Passes a chunk through the experts: in a backward whole, or the half that makes the gradients of their input.
  void expert(const Task& task);
  /// Makes the gradients of the experts' weights, from what the first half left at its rows.
  void expert_dw(const Task& task);

 private:
  /// Where a chunk's rows lie, by local expert: among all that the experts compute; in the chunk's own buffers,
  /// expert after expert.
  struct Places {
    std::vector<Rows> at, packed;
  };
  /// Sets the phase's places for `rows` of T_rank, and returns the rows of all experts together.
  int64_t place(Phase phase, Rows rows);

  LayerState& layer_;
  BoundPlan& plan_;
  EnumArray<Phase, Places, 2> places_;
};

/// The dense part's tasks behind attention: gate with its norm and residual, order and i-order, and the
/// collectives that bring tokens together and apart.
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
