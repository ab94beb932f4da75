// Answers what a model is asked before it has a plan: which layers are decided, whether it is too large, what it takes.
#include <algorithm>
#include <limits>

#include "moe/base/check.h"
#include "moe/schedule/model_plan.h"

namespace moe {

int decided_layers(const ModelShape& model) { return stages_apart(model) ? model.layers : layers_in(model.split(), 0); }

size_t first_decision(const ModelShape& model, int stage) {
  const StageSplit whole{model.layers, model.shape.parallel.pp, 1};  // however many chunks, a stage has as many layers
  return stages_apart(model) ? static_cast<size_t>(layers_of_chunk(whole, stage).first) : 0;
}

bool decides_dense(const ModelShape& model, size_t i) {
  if (model.dense.none(model.layers)) return false;
  int stage = 0;
  while (stage + 1 < model.shape.parallel.pp && first_decision(model, stage + 1) <= i) ++stage;
  return model.dense.has(nth_backward(model.split(), stage, static_cast<int>(i - first_decision(model, stage))));
}

size_t decision_of(const ModelShape& model, int layer) {
  const StageSplit split = model.split();
  const int chunk = chunk_of_layer(split, layer), stage = chunk % split.stages;
  const auto [first, last] = layers_of_chunk(split, chunk);
  const int chunks_behind = (split.chunks() - 1 - chunk) / split.stages;
  return first_decision(model, stage) + static_cast<size_t>(chunks_behind * (last - first) + last - 1 - layer);
}

std::pair<int, int> backward_degrees(const ModelShape& model, const ModelDecision& decision) {
  int least = std::numeric_limits<int>::max(), most = 0;
  for (size_t i = 0; i < decision.backwards.size(); ++i) {
    if (decides_dense(model, i)) continue;
    least = std::min(least, decision.backwards[i].degree);
    most = std::max(most, decision.backwards[i].degree);
  }
  return {least, most};
}

void check_size(const Schedule& schedule, const ModelShape& model, int degree_forward, int degree_backward) {
  const StructureKey key =
      structure_key(schedule, outline_of(model.shape), {degree_forward, degree_backward}, {}, Phases::both);
  const auto tasks = static_cast<double>(build_structure(key)->tasks.size());
  require<BadInput>(tasks * model.layers * model.micro_batches <= kMostTasks,
                    "layers x micro-batches: found {} x {} of {} tasks each (schedule {}, degrees {} and {}), expected "
                    "at most {} tasks in a plan",
                    model.layers, model.micro_batches, tasks, schedule.name, degree_forward, degree_backward,
                    kMostTasks);
  double bytes = static_cast<double>(gradient_bytes(model.shape));
  if (model.dense.hidden > 0)
    bytes = std::max(bytes, static_cast<double>(gradient_bytes(dense_case(model.shape, model.dense.hidden))));
  require<BadInput>(bytes * model.layers <= kMostBytes,
                    "layers: found {} of {} gradient bytes each, expected at most {} bytes in all", model.layers, bytes,
                    kMostBytes);
}

MemoryRequest memory_request(const ModelShape& model, const LayerCase& shape, Flow flow) {
  MemoryRequest request;
  request.shape = shape;
  request.layers = model.layers;
  request.dense = model.dense;
  request.micro_batches = model.micro_batches;
  request.order = model.order;
  request.virtual_stages = model.split().virtual_stages;
  request.flow = flow;
  request.vocabulary = model.vocabulary;
  request.tied_embedding = model.step.tied;
  request.keeps_ends = request.vocabulary > 0;
  return request;
}

void add_ends(ModelShape& model, int64_t vocabulary, bool tied_embedding) {
  const LayerCase& c = model.shape;
  model.step.tied = tied_embedding;
  model.ends = end_weights(c, vocabulary, tied_embedding);
  model.embedding_gradient_bytes = end_gradient_bytes(c, model.ends.embedding);
  model.head_gradient_bytes = end_gradient_bytes(c, model.ends.head);
}

void add_end_tasks(ModelShape& model, int64_t vocabulary) {
  model.vocabulary = vocabulary;
  add_ends(model, vocabulary, model.step.tied);
}

}  // namespace moe
