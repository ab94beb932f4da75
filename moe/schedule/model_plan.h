#pragma once
// Makes plans of a whole model: forward and backward over generalised layers, pipeline stages, micro-batches, and the
// optimizer's step at the end. A generalised layer is an MoE layer with the dense part before it (FSMoE section 5).
// Some layers may be dense (moe/shape/dense_layers.h); all others have the same shape.
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/schedule.h"

namespace moe {

/// A model whose layers are divided among shape.parallel.pp stages (StageSplit).
struct ModelShape {
  LayerCase shape;  // case of an MoE layer, with the window of those that have one; batch: samples of one micro-batch
  int layers = 1;
  int micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;
  int virtual_stages = 1;  // chunks of layers per stage; ignored if there is only one stage
  /// Gradients of the model's ends that DP sums on a rank, in bytes: the output projection's, made before the last
  /// stage's backward, and the embedding's, made by the first stage's backward. 0: not counted.
  int64_t head_gradient_bytes = 0, embedding_gradient_bytes = 0;
  /// Vocabulary of the model's ends (embedding, output projection and loss) as tasks of the plan (add_end_tasks()); 0:
  /// the plan has no such tasks.
  int64_t vocabulary = 0;
  StepShape step = {};
  EndWeights ends = {};  // weights of the ends, even if they have no tasks (add_ends())
  DenseLayers dense = {};
  LayerSet whole = {};

  StageSplit split() const {
    return split_of(shape, layers, shape.parallel.pp, shape.parallel.pp > 1 ? virtual_stages : 1);
  }
  /// Returns the micro-batches of whole samples, as --micro-batches; `micro_batches` counts each part of samples.
  int whole_micro_batches() const { return micro_batches / split().parts; }
  LayerKind kind(int layer) const { return layer_kind(dense, whole, layer); }
  int dense_in(int stage) const;
  int moe_in(int stage) const;
};
/// Gives a model the weights of its embedding, learned positions and output projection, each sharded over MP, and of
/// the norm between, with their gradients. If both ends share one tensor (tied, on one stage), its gradient is complete
/// after the embedding's; with several stages each end has a copy, and a planned step sums the copies.
void add_ends(ModelShape& model, int64_t vocabulary, bool tied_embedding);
/// Adds a model's ends as tasks of its plans, with all of their gradients; `model.step` says whether they are tied.
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
/// Returns the model of a plan; the gradients of its ends are those of their weights.
ModelShape model_of(const Plan& plan);
/// Returns the order of the model's micro-batches: "gpipe", or "1f1b, 2 virtual stages".
inline std::string describe_order(const ModelShape& model) {
  return describe_order(model.order, model.split().virtual_stages);
}
/// Returns whether each stage has its own decisions: if there are several stages, and layers of several kinds or stages
/// with their own numbers of layers.
inline bool stages_apart(const ModelShape& model) {
  const bool alike = model.dense.none(model.layers) && model.whole.none(model.layers);
  return model.shape.parallel.pp > 1 && (!alike || model.split().has_own_ends());
}
/// Returns the model's first layers. Fewer than all are divided evenly among the stages.
ModelShape first_layers(ModelShape model, int layers);

/// Returns the request for the memory of the model with MoE layers of that shape, before a plan exists.
MemoryRequest memory_request(const ModelShape& model, const LayerCase& shape, Flow flow);

/// Throws BadInput, naming layers and micro-batches, if a plan with these degrees has more than kMostTasks tasks or
/// more gradient bytes than can be counted.
void check_size(const Schedule& schedule, const ModelShape& model, int degree_forward, int degree_backward);

/// The decision for one layer in a stage's backward of the last micro-batch, the only one that sends gradients. A dense
/// layer has degree 1, no order and no MoE part in which gradients could be sent.
struct BackwardDecision {
  int degree = 1;
  int64_t gar_in_moe_bytes = 0, gar_beside_dense_bytes = 0;  // parts of what waits when this backward begins
  std::vector<int> gaps;                                     // gaps of the pieces that this backward sends
  LaneOrder order = {};
};

/// The decision for a whole model, which is the same for every stage unless stages_apart().
struct ModelDecision {
  int degree_forward = 1;
  int degree_backward = 1;                       // for the micro-batches before the last
  LaneOrder order_forward, order_backward = {};  // order_backward: for the micro-batches before the last
  int64_t micro_op_bytes = kMicroOpBytes;
  std::vector<BackwardDecision> backwards;  // by position in a stage's backward, its last layer first;
                                            // if stages_apart: stage 0, then stage 1 and so on
  int degree_first_forward = 0;             // for the first micro-batch; 0: as for all others
};
/// These return the number of layers that `backwards` decides, the index where a stage's layers begin in it, and
/// the kind of its i-th layer, which may be dense.
int decided_layers(const ModelShape& model);
size_t first_decision(const ModelShape& model, int stage);
LayerKind decided_kind(const ModelShape& model, size_t i);
inline bool decides_dense(const ModelShape& model, size_t i) { return is_dense(decided_kind(model, i)); }
/// Returns the index in `backwards` of a layer's backward.
size_t decision_of(const ModelShape& model, int layer);
/// Returns the least and the largest degree of the backwards of MoE layers.
std::pair<int, int> backward_degrees(const ModelShape& model, const ModelDecision& decision);

/// Returns the plan, checked. Each stage sends its gradients in the order in which they are made; gradients that no
/// backward sends form one slice at the end. A planned step adds the sums that no backward sends, the norm and one
/// optimizer task per layer or end. Pieces (micro_ops, fixed, own_lane) follow the schedule's policy: `gaps` applies to
/// the first of the waiting pieces. Throws BadInput for a decision that the schedule does not have.
Plan build_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

/// Returns the same plan, unchecked, for a search that times many plans and rebuilds the one it chooses.
Plan timed_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

}  // namespace moe
