#pragma once
// Plans of a whole model: forward and backward over like generalised layers, pipeline stages, micro-batches, the
// optimizer's step at the end. A generalised layer is an MoE layer with the dense part before it (FSMoE section 5).
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/schedule.h"

namespace moe {

/// shape.parallel.pp stages share the layers: the first ones have one more where they don't divide.
struct ModelShape {
  LayerCase shape;  // of one layer; batch: samples of one micro-batch
  int layers = 1;
  int micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;
  /// Gradients of the model's ends on a rank, bytes: of the output projection, made before the last stage's backward;
  /// of the embedding, made by the first stage's. 0: not counted.
  int64_t head_gradient_bytes = 0, embedding_gradient_bytes = 0;
  /// The model's ends are tasks: embedding, output projection and loss. 0: they are not in the plan.
  int64_t vocabulary = 0;
  StepShape step = {};
};
/// Gives a model the gradients of its embedding and output projection, each sharded over MP. Where they are one tensor
/// (tied, on one stage) its gradient is whole once the embedding's is; with stages each end has a copy, and what sums
/// the copies is not counted.
void add_ends(ModelShape& model, int64_t vocabulary, bool tied_embedding);
inline std::pair<int, int> layers_of_stage(const ModelShape& model, int stage) {
  return layers_of_stage(model.layers, model.shape.parallel.pp, stage);
}

/// Asks for the memory of the model with layers of that shape, before there is a plan.
MemoryRequest memory_request(const ModelShape& model, const LayerCase& shape, Flow flow);

/// Throws BadInput, naming layers and micro-batches, where a plan with these degrees has more than kMostTasks tasks or
/// more gradient bytes than can be counted.
void check_size(const Schedule& schedule, const ModelShape& model, int degree_forward, int degree_backward);

/// Decides one layer in a stage's backward of the last micro-batch, which alone sends gradients.
struct BackwardDecision {
  int degree = 1;
  int64_t gar_in_moe_bytes = 0, gar_beside_dense_bytes = 0;  // of what waits when this backward begins
  std::vector<int> gaps;                                     // of the pieces that this backward sends
  LaneOrder order = {};
};

/// Every stage does alike.
struct ModelDecision {
  int degree_forward = 1;
  int degree_backward = 1;                       // of the micro-batches before the last
  LaneOrder order_forward, order_backward = {};  // the second, too, of the micro-batches before the last
  int64_t micro_op_bytes = kMicroOpBytes;
  std::vector<BackwardDecision> backwards;  // by place in a stage's backward, its last layer first
};

/// The plan, checked. Gradients go in the order in which they are made, every stage's own; what no backward takes is
/// sent in one slice at the end. A planned step adds the sums that no backward sends, the norm and the optimizer's
/// tasks, a layer or end each. Pieces (micro_ops, fixed, own_lane) follow the schedule's policy: of `gaps` pieces the
/// first that wait. Throws BadInput for a decision that the schedule does not have.
Plan build_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

/// The same, not checked: for a search that times many. What it chooses is built again.
Plan timed_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

}  // namespace moe
