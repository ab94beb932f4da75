#pragma once
// Runs a plan's tasks on one rank of a layer: a table maps each kind of task to the part that executes it (binding/).
// The constructor makes everything that depends on the plan (layouts of both phases, names, gradient slices); issue()
// only enqueues work.
//
// In the steady state, one layer represents many equal ones: the gradient tasks of a pass sum over DP, in place, the
// dense gradients that the previous pass computed. So two passes over the same input and MoeLayer::finish_gradients()
// complete the layer's gradients. The gradients are zero before the first pass.
//
// The binding also does work that is in no plan: after the gate of a forward, on the gate's lane, all ranks sum the
// statistics of the auxiliary losses and, in a dropless layer, exchange their row counts. This work is not part of any
// task's measured time or price.
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/layer/binding/parts.h"
#include "moe/layer/binding/row_exchange.h"
#include "moe/layer/moe_layer.h"

namespace moe {

/// Throws Unsupported naming the feature of a plan that the layer can't run: several layers, chunks that mix
/// (chunk_counts_of).
void require_runnable(const Plan& plan);
/// Throws RankFailure naming both plans if two ranks have different ones, because they would hang or mix their data.
void require_same_plan(Communicator& world_comm, const Plan& plan);

class LayerBinding : public Binding {
 public:
  /// Binds a plan, whose structure is shared, to `layer`, which must outlive the binding. Throws WrongResult naming the
  /// difference unless the plan has the layer's case and flow, is whole (forward and backward), and of one layer.
  LayerBinding(MoeLayer& layer, const Plan& plan);
  LayerBinding(const LayerBinding&) = delete;  // plan_ is referenced by the other members
  LayerBinding& operator=(const LayerBinding&) = delete;

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task& task, Stream& stream) override;
  bool can_issue_ahead() const override { return layer_.shape.shape.layer.capacity_factor.has_value(); }
  /// Returns two, since the two buffers of dense gradients change places with each pass.
  int pass_variants() const override { return 2; }
  int pass_variant() const override { return layer_.gradients.swapped ? 1 : 0; }
  void before_replay() override;

 private:
  struct Row;  // maps a kind of task to its function
  static const Row& row_of(const Task& task);
  /// Begins a pass; every lane must be idle.
  void begin_pass();
  /// Enqueues the AllReduce of one slice of the experts' gradients or the dense part's.
  void sum_gradient(const Task& task, CommCall call);

  LayerState& layer_;
  layer::BoundPlan plan_;
  layer::AttentionPart attention_;
  layer::DensePart dense_;
  layer::RowExchange rows_;
  layer::ExpertPart experts_;
  layer::SharedPart shared_;
  layer::RunTimeSizes sizes_;
  bool sums_experts_ = false;       // whether the plan sums the experts' gradients
  std::vector<std::string> names_;  // task names; communicators keep views of them
};

/// Runs the tasks of a dense layer's passes (moe/shape/dense_layers.h) on one rank, as LayerBinding does for a layer
/// with experts.
class DenseBinding : public Binding {
 public:
  /// Binds a plan, whose structure is shared, to `layer`, which must outlive the binding. Throws WrongResult naming the
  /// difference unless the plan has the layer's case and flow.
  DenseBinding(MoeLayer& layer, const Plan& plan);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task&, Stream&) override {}
  bool can_issue_ahead() const override { return true; }

 private:
  struct Row;  // maps a kind of task to its function

  LayerState& layer_;
  Plan plan_;
  layer::AttentionPart attention_;
  layer::FfnPart ffn_;
  std::vector<std::string> names_;  // task names; communicators keep views of them
};

}  // namespace moe
