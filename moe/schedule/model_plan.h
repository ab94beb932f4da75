#pragma once
// Makes plans of a whole model: forward and backward over generalised layers, pipeline stages, micro-batches, the
// optimizer's step at the end. A generalised layer is an MoE layer with the dense part before it (FSMoE section 5).
// Some layers may be dense (moe/shape/dense_layers.h); all others are alike.
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/schedule.h"

namespace moe {

/// A model, whose layers shape.parallel.pp stages share: the first ones have one more where they don't
/// divide. With virtual stages they divide.
struct ModelShape {
  LayerCase shape;  // of a layer with experts; batch: samples of one micro-batch
  int layers = 1;
  int micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;
  int virtual_stages = 1;  // chunks of layers that a stage has; one stage has one, whatever this says
  /// Gradients of the model's ends that DP adds up on a rank, bytes: of the output projection, made before the last
  /// stage's backward; of the embedding, made by the first stage's. 0: not counted.
  int64_t head_gradient_bytes = 0, embedding_gradient_bytes = 0;
  /// Tokens of the model's ends (embedding, output projection and loss), which then are tasks (add_end_tasks()); 0:
  /// they are not in the plan.
  int64_t vocabulary = 0;
  StepShape step = {};
  EndWeights ends = {};  // of its vocabulary, though the ends be no tasks (add_ends())
  DenseLayers dense = {};

  StageSplit split() const {
    return {layers, shape.parallel.pp, shape.parallel.pp > 1 ? virtual_stages : 1, static_cast<int>(shape.layer.parts)};
  }
  /// Counts micro-batches of whole samples, as --micro-batches does: of samples in parts, each part is one too.
  int whole_micro_batches() const { return micro_batches / split().parts; }
  int dense_in(int stage) const;
  int moe_in(int stage) const;
};
/// Gives a model the weights of its embedding, learned places and output projection, each sharded over MP, and of the
/// norm between, with their gradients. Where both ends are one tensor (tied, on one stage) its gradient is whole once
/// the embedding's is; with stages each end has a copy, and a planned step sums the copies.
void add_ends(ModelShape& model, int64_t vocabulary, bool tied_embedding);
/// Gives a model its ends as tasks of its plans, with all of their gradients; `model.step` says whether they are tied.
void add_end_tasks(ModelShape& model, int64_t vocabulary);
inline int ModelShape::dense_in(int stage) const {
  const StageSplit own = split();
  int count = 0;
  for (int chunk = stage; chunk < own.chunks(); chunk += own.stages) {
    const auto [first, last] = layers_of_chunk(own, chunk);
    count += dense.in(first, last);
  }
  return count;
}
inline int ModelShape::moe_in(int stage) const { return layers_in(split(), stage) - dense_in(stage); }
/// Returns the model of a plan; gradients of its ends are those of their weights.
ModelShape model_of(const Plan& plan);
/// Returns the order of the model's micro-batches: "gpipe", or "1f1b, 2 virtual stages".
inline std::string describe_order(const ModelShape& model) {
  return describe_order(model.order, model.split().virtual_stages);
}
/// Returns whether each stage has decisions of its own: where there are several, and layers that differ.
inline bool stages_apart(const ModelShape& model) {
  return model.shape.parallel.pp > 1 && !model.dense.none(model.layers);
}

/// Returns the request for the memory of the model with MoE layers of that shape, before there is a plan.
MemoryRequest memory_request(const ModelShape& model, const LayerCase& shape, Flow flow);

/// Throws BadInput, naming layers and micro-batches, where a plan with these degrees has more than kMostTasks tasks or
/// more gradient bytes than can be counted.
void check_size(const Schedule& schedule, const ModelShape& model, int degree_forward, int degree_backward);

/// Decides one layer in a stage's backward of the last micro-batch, which alone sends gradients. A dense layer has
/// degree 1, no order and no MoE part to send anything in.
struct BackwardDecision {
  int degree = 1;
  int64_t gar_in_moe_bytes = 0, gar_beside_dense_bytes = 0;  // of what waits when this backward begins
  std::vector<int> gaps;                                     // of the pieces that this backward sends
  LaneOrder order = {};
};

/// Decides a whole model; every stage does alike, save where stages_apart().
struct ModelDecision {
  int degree_forward = 1;
  int degree_backward = 1;                       // of the micro-batches before the last
  LaneOrder order_forward, order_backward = {};  // the second, too, of the micro-batches before the last
  int64_t micro_op_bytes = kMicroOpBytes;
  std::vector<BackwardDecision> backwards;  // by place in a stage's backward, its last layer first
                                            // where stages_apart: of stage 0, then of stage 1 and so on
  int degree_first_forward = 0;             // of the first micro-batch; 0: as all others'
};
/// These return how many layers `backwards` decides, where a stage's begin in it, and whether its i-th is a dense
/// one's.
int decided_layers(const ModelShape& model);
size_t first_decision(const ModelShape& model, int stage);
bool decides_dense(const ModelShape& model, size_t i);
/// Returns the place in `backwards` of a layer's backward.
size_t decision_of(const ModelShape& model, int layer);
/// Returns the least and the largest degree of the backwards of layers with experts.
std::pair<int, int> backward_degrees(const ModelShape& model, const ModelDecision& decision);

/// Returns the plan, checked. Gradients go in the order in which they are made, every stage's own; what no backward
/// takes is sent in one slice at the end. A planned step adds the sums that no backward sends, the norm and the
/// optimizer's tasks, a layer or end each. Pieces (micro_ops, fixed, own_lane) follow the schedule's policy: of `gaps`
/// pieces the first that wait. Throws BadInput for a decision that the schedule does not have.
Plan build_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

/// Returns the same plan, not checked: for a search that times many. What it chooses is built again.
Plan timed_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

}  // namespace moe
