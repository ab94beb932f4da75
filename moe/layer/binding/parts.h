#pragma once
// The parts of a layer that a plan's tasks call: attention, feed-forward, shared expert, experts, dense layers.
#include "moe/base/enum_array.h"
#include "moe/exec/executor.h"
#include "moe/layer/binding/bound_plan.h"
#include "moe/layer/binding/row_exchange.h"
#include "moe/layer/moe_layer.h"

namespace moe::layer {

/// Attention's tasks, with its norm and residual, and the collectives over MP that gather its tokens and scatter
/// them.
class AttentionPart {
 public:
  explicit AttentionPart(LayerState& layer) : layer_(layer) {}

  /// Computes attention, on its task's stream; for attention_dx, the first half of its backward.
  void attention(const Task& task);
  /// Computes the second half of the backward.
  void attention_dw(const Task& task);
  /// Computes keys and values of the rank's tokens, under context parallelism; in a ring, queries too.
  void keys_values(const Task& task);
  /// Computes the heads with the task's block of keys and values.
  void heads(const Task& task);

  // These functions enqueue a collective on the call's stream.
  void mp_allgather(const Task& task, CommCall call);
  void mp_reducescatter(const Task& task, CommCall call);
  void mp_allreduce(const Task& task, CommCall call);
  void cp_allgather(const Task& task, CommCall call);
  void cp_reducescatter(const Task& task, CommCall call);
  void cp_send(const Task& task, CommCall call);
  /// Adds the gradients that other ranks have sent to the rank's own part, and sends the sum.
  void cp_gradient_send(const Task& task, CommCall call);

 private:
  Math& math() const { return layer_.math(); }
  const RankShape& rank() const { return layer_.shape; }
  bool has_cp() const { return rank().shape.parallel.cp > 1; }
  TensorView read() const;
  void end_backward();
  void add_residual(TensorView from, TensorView to) const;

  LayerState& layer_;
};

/// A dense layer's feed-forward, with its norm and residual, and the collectives over MP that gather its tokens and
/// scatter them, like attention's.
class FfnPart {
 public:
  explicit FfnPart(LayerState& layer) : layer_(layer) {}

  /// Computes the feed-forward, on its task's stream.
  void ffn(const Task& task);

  // These functions enqueue a collective on the call's stream.
  void allgather(const Task& task, CommCall call);
  void reducescatter(const Task& task, CommCall call);
  void allreduce(const Task& task, CommCall call);

 private:
  LayerState& layer_;
};

/// The shared expert's tasks: every token of the MP group passes through this rank's shard of the expert, whose outputs
/// are partial sums over that group.
class SharedPart {
 public:
  explicit SharedPart(LayerState& layer) : layer_(layer), hooks_(layer) {}

  // These functions enqueue a collective on the call's stream; the expert computes on its task's stream.
  void allgather(const Task& task, CommCall call);
  void shared(const Task& task);
  void reducescatter(const Task& task, CommCall call);
  void allreduce(const Task& task, CommCall call);

  /// Adds the sum over MP, of this rank's own tokens, to the rows of the tokens that the rank gates: the output in the
  /// forward, the gradient in the backward. Does nothing if the layer has no shared expert.
  void add_to(Phase phase, TensorView gated) const;

 private:
  /// Returns the input of the MoE part, for the tokens that the MP group shares or that this rank alone has.
  TensorView moe_input(Phase phase) const;
  TensorView own_group_part(TensorView gated) const;

  LayerState& layer_;
  WireHooks hooks_;
};

/// The experts' tasks, and the copies between the gathered rows and the memory where the experts compute.
class ExpertPart {
 public:
  ExpertPart(LayerState& layer, BoundPlan& plan);

  /// Copies the rows of the task's chunk to the experts, in plans that have a separate task for the copy.
  void copy(const Task& task);
  /// Computes the experts for a chunk: forward, whole backward, or only the input gradients (expert_dx).
  void expert(const Task& task);
  /// Computes the gradients of the experts' weights after expert_dx.
  void expert_dw(const Task& task);

 private:
  /// The rows of a chunk, by local expert: `at` in the tensor of all rows that the experts compute, `packed` in the
  /// chunk's own buffers, where the experts' rows follow each other.
  struct Places {
    std::vector<Rows> at, packed;
  };
  /// Sets the phase's places for `rows` of T_rank, and returns the number of rows of all experts together.
  int64_t place(Phase phase, Rows rows);

  LayerState& layer_;
  BoundPlan& plan_;
  EnumArray<Phase, Places, 2> places_;
};

/// The dense part's tasks after attention: gate with its norm and residual, order and i-order, and the collectives that
/// gather tokens and scatter them.
class DensePart {
 public:
  DensePart(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan), hooks_(layer), shared_(layer) {}

  // These functions compute, on their task's stream.
  void gate(const Task& task);
  void order(const Task& task);
  void i_order(const Task& task);

  // These functions enqueue a collective on the call's stream.
  void tokens_allgather(const Task& task, CommCall call);
  void tokens_reducescatter(const Task& task, CommCall call);

  /// Enqueues, after a forward's gate, the sum of the auxiliary losses' counts over all ranks.
  void sum_statistics(Stream& stream);

 private:
  void gate_backward(Phase phase);
  void add_residual_gradient(TensorView d);
  /// Returns the rows that i_order reads in the forward, and order in the backward.
  RowsView home_rows(Phase phase);
  Math& math() const { return layer_.math(); }
  const RankShape& rank() const { return layer_.shape; }

  LayerState& layer_;
  BoundPlan& plan_;
  WireHooks hooks_;
  SharedPart shared_;
};

}  // namespace moe::layer
