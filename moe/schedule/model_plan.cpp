#include "moe/schedule/model_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "moe/base/check.h"
#include "moe/schedule/detail/iteration_builder.h"

namespace moe {
namespace {

// The gradients of one stage, which are sent in the order in which they are made. A slice is added to the plan when it
// is sent. The gradients are added as one block after all of them are made; until then, slices count gradients from the
// stage's first one.
class Sender {
 public:
  void made(int layer, int64_t bytes, int task, bool experts = false) {
    gradients_.push_back({layer, bytes, task, experts});
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + bytes);
  }
  int64_t waiting() const { return (ends_.empty() ? 0 : ends_.back()) - sent_; }
  size_t count() const { return gradients_.size(); }
  void set_maker(size_t gradient, int task) { gradients_[gradient].made_by = task; }

  /// Adds the next `bytes` bytes to the plan as a slice; returns the task that made the last of them.
  int send(int64_t bytes, Plan& plan) {
    const auto holding = [&](int64_t byte) {
      return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), byte) - ends_.begin());
    };
    const size_t from = holding(sent_), to = holding(sent_ + bytes - 1);
    const int64_t offset = from == 0 ? 0 : ends_[from - 1];
    slices_.push_back(plan.slices.size());
    plan.slices.push_back({static_cast<int>(from), sent_ - offset, sent_ + bytes - offset});
    sent_ += bytes;
    return gradients_[to].made_by;
  }

  /// These add pieces, into which the schedule cuts gradients, in the order in which they are made, and send the first
  /// `count` of them.
  void add_pieces(const std::vector<int64_t>& bytes, bool experts) {
    for (const int64_t piece : bytes) pieces_.push_back({piece, experts});
  }
  size_t waiting_pieces() const { return pieces_.size(); }
  void send_pieces(size_t count, Plan& plan, std::vector<int>& ready, std::vector<bool>& experts) {
    for (size_t i = 0; i < count; ++i) {
      ready.push_back(send(pieces_[i].bytes, plan));
      experts.push_back(pieces_[i].experts);
    }
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  void add_to(Plan& plan) const {
    for (const size_t slice : slices_) plan.slices[slice].gradient += static_cast<int>(plan.gradients.size());
    plan.gradients.insert(plan.gradients.end(), gradients_.begin(), gradients_.end());
  }

 private:
  std::vector<Gradient> gradients_;
  std::vector<int64_t> ends_;
  std::vector<size_t> slices_;
  struct Piece {
    int64_t bytes;
    bool experts;
  };
  std::vector<Piece> pieces_;  // pieces that are not sent yet
  int64_t sent_ = 0;
};

class ModelBuilder {
 public:
  ModelBuilder(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision)
      : schedule_(schedule),
        model_(model),
        decision_(decision),
        cases_(model.shape, model.dense, model.whole),
        split_(model.split()),
        senders_(static_cast<size_t>(split_.stages)) {
    plan_.schedule = schedule.name;
    plan_.shape = model.shape;
    plan_.dense = model.dense.first(model.layers);
    plan_.whole = model.whole.first(model.layers);
    plan_.groups = groups_of(model.shape.parallel);
    plan_.rows = padded_rows(model.shape);
    plan_.layers = model.layers;
    plan_.vocabulary = model.vocabulary;
    plan_.step = model.step;
    plan_.ends = model.ends;
    plan_.micro_batches = model.micro_batches;
    plan_.order = model.order;
    plan_.virtual_stages = model.split().virtual_stages;
    plan_.degree_forward = decision.degree_forward;
    const auto first = std::ranges::find_if(decision.backwards, [&](const BackwardDecision& b) {
      return !decides_dense(model, static_cast<size_t>(&b - decision.backwards.data()));
    });
    plan_.degree_backward = first->degree;
  }

  Plan build() {
    const int peers = plan_.groups[GroupKind::ep].size;
    schedule::IterationBuilder builder(
        schedule_, {networks_of(plan_.groups), peers, plan_.shape.layer.shared_hidden > 0, split_.stages,
                    plan_.shape.parallel.recompute == Recompute::full, split_.parts,
                    plan_.shape.parallel.offload == Offload::experts, plan_.shape.parallel.ring_blocks()});
    for (const PipelineStep& step : pipeline_steps(model_.order, model_.micro_batches, split_)) run(builder, step);
    if (plan_.step.planned) schedule::StepBuilder(plan_, builder).step();
    plan_.structure = std::make_shared<const Structure>(builder.take());
    set_works(plan_);
    return std::move(plan_);
  }

 private:
  void run(schedule::IterationBuilder& builder, const PipelineStep& step) {
    if (step.phase == Phase::forward)
      run_forward(builder, step);
    else
      run_backward(builder, step);
  }

  bool begins(const PipelineStep& step) const { return step.chunk == 0; }
  bool ends(const PipelineStep& step) const { return step.chunk + 1 == split_.chunks(); }
  schedule::Pass pass_of(const PipelineStep& step) const {
    return {.phase = step.phase, .stage = step.stage(split_), .micro_batch = step.micro_batch};
  }

  void run_forward(schedule::IterationBuilder& builder, const PipelineStep& step) {
    const auto [first, last] = layers_of_chunk(split_, step.chunk);
    schedule::Pass pass = pass_of(step);
    if (begins(step) && model_.vocabulary > 0) builder.embed(pass);
    const int first_degree = step.micro_batch == 0 ? decision_.degree_first_forward : 0;
    pass.degree = first_degree > 0 ? first_degree : decision_.degree_forward;
    pass.order = decision_.order_forward;
    for (pass.layer = first; pass.layer < last; ++pass.layer) {
      pass.dense = cases_.is_dense(pass.layer);
      forward_end_ = builder.add(pass);
    }
    pass.layer = last - 1;
    if (!ends(step)) builder.transfer(pass);
    if (ends(step) && model_.vocabulary > 0) builder.head(pass);
  }

  void run_backward(schedule::IterationBuilder& builder, const PipelineStep& step) {
    const auto [first, last] = layers_of_chunk(split_, step.chunk);
    schedule::Pass pass = pass_of(step);
    pass.layer = last - 1;
    int end = forward_end_;
    if (ends(step) && model_.vocabulary > 0) end = builder.head(pass);
    const bool sends = step.micro_batch == last_backward(model_.micro_batches, split_);  // this chunk's last backward
    Sender& sender = senders_[pass.stage];
    if (sends && ends(step)) made_by_end(model_.layers, model_.head_gradient_bytes, end, sender);
    for (pass.layer = last - 1; pass.layer >= first; --pass.layer)
      end = sends ? sending_backward(builder, pass, sender) : keeping_backward(builder, pass);
    pass.layer = first;
    pass.gradients = {};
    if (!begins(step)) builder.transfer(pass);
    const int embedded = begins(step) && model_.vocabulary > 0 ? builder.embed(pass) : end;
    if (sends && begins(step)) made_by_end(kEmbeddingLayer, model_.embedding_gradient_bytes, embedded, sender);
    if (sends && step.chunk == pass.stage) finish(builder, pass.stage, end, sender);
  }

  // Adds a backward of a layer that sends no gradients, because later micro-batches contribute to them. Returns its
  // last task.
  int keeping_backward(schedule::IterationBuilder& builder, schedule::Pass& pass) {
    pass.dense = cases_.is_dense(pass.layer);
    pass.degree = decision_.degree_backward;
    pass.order = decision_.order_backward;
    pass.gradients = {};
    pass.ready.clear();
    return builder.add(pass);
  }

  // Adds a layer's backward of the last micro-batch, during which waiting gradients are sent. Returns its last task.
  int sending_backward(schedule::IterationBuilder& builder, schedule::Pass& pass, Sender& sender) {
    const LayerCase& own_case = cases_.at(pass.layer);
    const BackwardDecision& decided = decision_.backwards[decision_of(model_, pass.layer)];
    pass.dense = cases_.is_dense(pass.layer);
    pass.degree = decided.degree;
    pass.order = decided.order;
    pass.gradients = {};
    pass.ready.clear();
    const size_t own = sender.count();
    const std::vector<int64_t> experts = expert_gradient_pieces(schedule_, own_case, decision_.micro_op_bytes);
    if (!experts.empty()) {
      sender.made(pass.layer, expert_gradient_bytes(own_case), schedule::kMadeHere, true);
      sender.add_pieces(experts, true);
    }
    place(decided, sender, pass);
    const int end = builder.add(pass);
    if (!experts.empty()) sender.set_maker(own, builder.last_expert());
    if (plan_.shape.parallel.replicas() == 1) return end;
    sender.made(pass.layer, gradient_bytes(own_case), end);
    if (sends_pieces(schedule_))
      sender.add_pieces(gradient_pieces(schedule_, own_case, decision_.micro_op_bytes), false);
    return end;
  }

  // Adds the gradient of an end, the output projection or the embedding, as one tensor.
  void made_by_end(int layer, int64_t bytes, int task, Sender& sender) {
    if (bytes == 0 || plan_.shape.parallel.replicas() == 1) return;
    sender.made(layer, bytes, task);
    if (!sends_pieces(schedule_)) return;
    sender.add_pieces(pieces_of(schedule_, {bytes}, decision_.micro_op_bytes, plan_.shape.layer.dtype), false);
  }

  void place(const BackwardDecision& decided, Sender& sender, schedule::Pass& pass) {
    const auto slice = [&](int64_t bytes, bool& slot) {
      require<BadInput>(bytes >= 0 && bytes <= sender.waiting(), "layer {}: found {} gradient bytes to send, {} wait",
                        pass.layer, bytes, sender.waiting());
      slot = bytes > 0;
      if (slot) pass.ready.push_back(sender.send(bytes, plan_));
    };
    slice(decided.gar_in_moe_bytes, pass.gradients.slots.in_moe);
    slice(decided.gar_beside_dense_bytes, pass.gradients.slots.beside_dense);
    if (!sends_pieces(schedule_)) return;
    // Pieces of previous backwards and of this layer's experts are waiting. This backward sends as many of them, in
    // order, as `gaps` has entries.
    pass.gradients.gaps = decided.gaps;
    if (schedule_.gradients != GradientPolicy::micro_ops)
      pass.gradients.gaps.assign(sender.waiting_pieces(), schedule_.gradients == GradientPolicy::fixed ? kAfterMoe : 0);
    require<BadInput>(pass.gradients.gaps.size() <= sender.waiting_pieces(),
                      "layer {}: found {} pieces to send, {} wait", pass.layer, pass.gradients.gaps.size(),
                      sender.waiting_pieces());
    sender.send_pieces(pass.gradients.gaps.size(), plan_, pass.ready, pass.gradients.experts);
  }

  // Adds the stage's remaining gradients and its optimizer. `end`: the last task of its backwards.
  void finish(schedule::IterationBuilder& builder, int stage, int end, Sender& sender) {
    std::vector<int> ready;
    std::vector<bool> experts;
    sender.send_pieces(sender.waiting_pieces(), plan_, ready, experts);
    if (sender.waiting() > 0) ready.push_back(sender.send(sender.waiting(), plan_));
    sender.add_to(plan_);
    const std::vector<int> layers = layers_of_stage(split_, stage);
    if (plan_.step.planned) {
      const bool placed = !expert_gradient_pieces(schedule_, plan_.shape, decision_.micro_op_bytes).empty();
      return schedule::StepBuilder(plan_, builder).send_remaining({stage, end, !placed}, ready, experts);
    }
    builder.finish(stage, layers.front(), ready, experts);
    if (plan_.shape.parallel.offload == Offload::experts) schedule::StepBuilder(plan_, builder).store(stage);
    builder.optimize(stage, layers.front());
    if (plan_.shape.parallel.zero > 0) builder.gather_weights(stage, layers, plan_.dense);
  }

  const Schedule& schedule_;
  const ModelShape& model_;
  const ModelDecision& decision_;
  LayerCases cases_;
  StageSplit split_;
  std::vector<Sender> senders_;  // for each stage
  int forward_end_ = -1;         // the last task of the most recent forward
  Plan plan_;
};

}  // namespace

Plan timed_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision) {
  require<BadInput>(model.micro_batches >= 1, "micro-batches: found {}, expected >= 1", model.micro_batches);
  check_stages(model.split(), model.order, model.micro_batches);
  require<BadInput>(model.micro_batches % model.split().parts == 0,
                    "parts: found {} of {} micro-batches, expected all parts of each sample", model.split().parts,
                    model.micro_batches);
  require<Unsupported>(model.split().parts == 1 || model.shape.parallel.recompute != Recompute::full,
                       "parts: found {} with recompute full, which keeps no keys, expected none or selective",
                       model.split().parts);
  require<BadInput>(schedule.variants.empty(),
                    "schedule {}: found a schedule with variants, which has no plans itself, expected a variant",
                    schedule.name);
  require_equal<BadInput>(static_cast<int>(decision.backwards.size()), decided_layers(model),
                          "backward decisions of a stage");
  require<BadInput>(model.dense.count(0, model.layers) < model.layers,
                    "layers: found {}, all of them dense, expected one with experts", model.layers);
  check_shape(schedule, model.shape);
  Decision before_last{decision.degree_forward, decision.degree_backward};
  before_last.order_backward = decision.order_backward;
  check_decision(schedule, before_last);
  for (size_t i = 0; i < decision.backwards.size(); ++i) {
    const BackwardDecision& b = decision.backwards[i];
    if (decides_dense(model, i)) {
      require<BadInput>(b.degree == 1 && b.gar_in_moe_bytes == 0 && b.order.empty(),
                        "a dense layer: found degree {}, {} bytes in its MoE part and order {}, it has none", b.degree,
                        b.gar_in_moe_bytes, b.order);
      continue;
    }
    Decision d = with_split(schedule, decision.degree_forward, b.degree, 0);
    d.order_forward = decision.order_forward;
    d.order_backward = b.order;
    if (schedule.gradients != GradientPolicy::adaptive) {  // the adaptive policy has both places
      d.gar_in_moe_bytes = b.gar_in_moe_bytes;
      d.gar_beside_dense_bytes = b.gar_beside_dense_bytes;
    }
    check_decision(schedule, d);
    require<BadInput>(schedule.gradients == GradientPolicy::micro_ops || b.gaps.empty(),
                      "schedule {} has no micro-ops, found {} places for them", schedule.name, b.gaps.size());
  }
  const int most = std::ranges::max(decision.backwards, {}, &BackwardDecision::degree).degree;
  check_size(schedule, model, decision.degree_forward, std::max(most, decision.degree_backward));
  return ModelBuilder(schedule, model, decision).build();
}

Plan build_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision) {
  Plan plan = timed_model_plan(schedule, model, decision);
  check_plan(plan);
  return plan;
}

// Properties of a model that are known before it has a plan: the layers with decisions, its size and its memory.

int decided_layers(const ModelShape& model) {
  return stages_decide_separately(model) ? model.layers : layers_in(model.split(), 0);
}

ModelShape first_layers(ModelShape model, int layers) {
  if (layers < model.layers) model.shape.layer.first_stage_layers = model.shape.layer.last_stage_layers = 0;
  model.layers = layers;
  model.dense = model.dense.first(layers);
  model.whole = model.whole.first(layers);
  return model;
}

size_t first_decision(const ModelShape& model, int stage) {
  StageSplit whole = model.split();
  whole.virtual_stages = 1;  // all chunks of a stage have equally many layers
  return stages_decide_separately(model) ? static_cast<size_t>(layers_of_chunk(whole, stage).first) : 0;
}

LayerKind decided_kind(const ModelShape& model, size_t i) {
  if (model.dense.has_none(model.layers) && model.whole.has_none(model.layers)) return LayerKind::moe;
  int stage = 0;
  while (stage + 1 < model.shape.parallel.pp && first_decision(model, stage + 1) <= i) ++stage;
  return model.kind(nth_backward(model.split(), stage, static_cast<int>(i - first_decision(model, stage))));
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
  require<BadInput>(tasks * model.layers * model.micro_batches <= kMaxTasks,
                    "layers x micro-batches: found {} x {} of {} tasks each (schedule {}, degrees {} and {}), expected "
                    "at most {} tasks in a plan",
                    model.layers, model.micro_batches, tasks, schedule.name, degree_forward, degree_backward,
                    kMaxTasks);
  double bytes = static_cast<double>(gradient_bytes(model.shape));
  if (model.dense.hidden > 0)
    bytes = std::max(bytes, static_cast<double>(gradient_bytes(dense_case(model.shape, model.dense.hidden))));
  require<BadInput>(bytes * model.layers <= kMaxBytes,
                    "layers: found {} of {} gradient bytes each, expected at most {} bytes in all", model.layers, bytes,
                    kMaxBytes);
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

namespace {

void count_end_gradients(ModelShape& model) {
  model.embedding_gradient_bytes = end_gradient_bytes(model.shape, model.ends.embedding);
  model.head_gradient_bytes = end_gradient_bytes(model.shape, model.ends.head);
}

}  // namespace

ModelShape model_of(const Plan& plan) {
  ModelShape model{.shape = plan.shape,
                   .layers = plan.layers,
                   .micro_batches = plan.micro_batches,
                   .order = plan.order,
                   .virtual_stages = plan.virtual_stages,
                   .vocabulary = plan.vocabulary,
                   .step = plan.step,
                   .ends = plan.ends,
                   .dense = plan.dense,
                   .whole = plan.whole};
  count_end_gradients(model);
  return model;
}

void add_ends(ModelShape& model, int64_t vocabulary, bool tied_embedding) {
  model.step.tied = tied_embedding;
  model.ends = end_weights(model.shape, vocabulary, tied_embedding);
  count_end_gradients(model);
}

void add_end_tasks(ModelShape& model, int64_t vocabulary) {
  model.vocabulary = vocabulary;
  add_ends(model, vocabulary, model.step.tied);
}

}  // namespace moe
