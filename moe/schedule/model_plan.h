#pragma once
// Plans of a whole model: the forwards and backwards of all layers, pipeline stages and micro-batches, and the
// optimizer's step at the end. A layer is FSMoE's generalised layer: an MoE layer with the dense part before it (FSMoE
// section 5). Some layers may be dense (moe/shape/dense_layers.h); all others have the same shape.
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/schedule.h"

namespace moe {

/// A model with its distribution over shape.parallel.pp stages (StageSplit).
struct ModelShape {
  /// Case of an MoE layer, with the window if the model has one; its batch: samples of one micro-batch.
  LayerCase shape;
  int layers = 1;
  int micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;
  int virtual_stages = 1;  // chunks of layers per stage; ignored if there is only one stage
  /// Bytes of the ends' gradients on a rank that are summed over DP. The output projection's exist before the last
  /// stage's backward; the embedding's are made by the first stage's backward. 0: not counted.
  int64_t head_gradient_bytes = 0, embedding_gradient_bytes = 0;
  /// Size of the vocabulary if the plan has tasks for embedding, output projection and loss (add_end_tasks()); 0: it
  /// has no such tasks.
  int64_t vocabulary = 0;
  StepShape step = {};
  EndWeights ends = {};  // weights of the ends, even if they have no tasks (add_ends())
  DenseLayers dense = {};
  LayerSet whole = {};

  StageSplit split() const {
    return split_of(shape, layers, shape.parallel.pp, shape.parallel.pp > 1 ? virtual_stages : 1);
  }
  /// Returns the number of micro-batches of whole samples, the value of --micro-batches. `micro_batches` counts each
  /// part of these samples.
  int whole_micro_batches() const { return micro_batches / split().parts; }
  LayerKind kind(int layer) const { return layer_kind(dense, whole, layer); }
  int dense_in(int stage) const;
  int moe_in(int stage) const;
};
/// Adds the weights and gradients of a model's ends: embedding, learned positions and output projection, each sharded
/// over MP, and the norm before the projection. If both ends share one tensor (tied, on one stage), its gradient is
/// complete after the embedding's backward; with several stages each end has a copy, and a planned step sums the
/// copies' gradients.
void add_ends(ModelShape& model, int64_t vocabulary, bool tied_embedding);
/// Adds a model's ends as tasks, with all of their gradients; `model.step.tied` says whether they share their weights.
void add_end_tasks(ModelShape& model, int64_t vocabulary);
inline int ModelShape::dense_in(int stage) const {
  const StageSplit own = split();
  int count = 0;
  for (int chunk = stage; chunk < own.chunks(); chunk += own.stages) {
    const auto [first, last] = layers_of_chunk(own, chunk);
    count += dense.count(first, last);
  }
  return count;
}
inline int ModelShape::moe_in(int stage) const { return layers_in(split(), stage) - dense_in(stage); }
/// Returns the model that a plan was built for. The gradients of its ends follow from the ends' weights.
ModelShape model_of(const Plan& plan);
/// Returns the name of the micro-batches' order: "gpipe", or "1f1b, 2 virtual stages".
inline std::string describe_order(const ModelShape& model) {
  return describe_order(model.order, model.split().virtual_stages);
}
/// Returns whether stages differ, so that each has its own decisions: there are several stages, and either layers of
/// several kinds or stages with their own numbers of layers.
inline bool stages_decide_separately(const ModelShape& model) {
  const bool alike = model.dense.has_none(model.layers) && model.whole.has_none(model.layers);
  return model.shape.parallel.pp > 1 && (!alike || model.split().has_own_ends());
}
/// Returns the model cut to its first `layers` layers. If it had more, they are divided evenly among the stages.
ModelShape first_layers(ModelShape model, int layers);

/// Returns the memory request for a model that has no plan yet. `shape`: the case of its MoE layers.
MemoryRequest memory_request(const ModelShape& model, const LayerCase& shape, Flow flow);

/// Throws BadInput, naming layers and micro-batches, if a plan with these degrees has more than kMaxTasks tasks or
/// more gradient bytes than can be counted.
void check_size(const Schedule& schedule, const ModelShape& model, int degree_forward, int degree_backward);

/// The decision for one layer's backward of the last micro-batch, the only backward that sends gradients. For a dense
/// layer: degree 1, no order and no bytes in the MoE part.
struct BackwardDecision {
  int degree = 1;
  /// Bytes of the gradients that wait when this backward begins.
  int64_t gar_in_moe_bytes = 0, gar_beside_dense_bytes = 0;
  /// Gaps (as Decision::gaps) of the pieces that this backward sends.
  std::vector<int> gaps;
  LaneOrder order = {};
};

/// The decision for a whole model, which is the same for every stage unless stages_decide_separately().
struct ModelDecision {
  int degree_forward = 1;
  int degree_backward = 1;                       // for the micro-batches before the last
  LaneOrder order_forward, order_backward = {};  // order_backward: for the micro-batches before the last
  int64_t micro_op_bytes = kMicroOpBytes;
  /// For each layer of a stage, the last layer first; if stages_decide_separately(), of stage 0, then of stage 1 and so
  /// on.
  std::vector<BackwardDecision> backwards;
  int degree_first_forward = 0;  // for the first micro-batch; 0: degree_forward
};
/// About ModelDecision::backwards. These return its size, the index of a stage's first entry, and the kind of the layer
/// of entry i.
int decided_layers(const ModelShape& model);
size_t first_decision(const ModelShape& model, int stage);
LayerKind decided_kind(const ModelShape& model, size_t i);
inline bool decides_dense(const ModelShape& model, size_t i) { return is_dense(decided_kind(model, i)); }
/// Returns the index of a layer in ModelDecision::backwards.
size_t decision_of(const ModelShape& model, int layer);
/// Returns the least and the largest degree of the backwards of MoE layers.
std::pair<int, int> backward_degrees(const ModelShape& model, const ModelDecision& decision);

/// Returns the plan, checked. Each stage sends its gradients in the order in which they are made; gradients that no
/// backward sends form one slice at the end. A planned step adds the remaining sums, the norm and one optimizer task
/// per layer or end. For policies with pieces (micro_ops, fixed, own_lane), entry i of `gaps` places the i-th waiting
/// piece. Throws BadInput for a decision that the schedule does not allow.
Plan build_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

/// Returns the same plan without checking it. For searches that time many plans and then build the chosen one.
Plan timed_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision);

}  // namespace moe
