#include "moe/schedule/model_plan.h"

#include <algorithm>
#include <numeric>

#include "moe/base/check.h"
#include "moe/schedule/step_builder.h"

namespace moe {
namespace {

// Sends one stage's gradients in the order in which they are made.
class Sender {
 public:
  Sender(Plan& plan, size_t first_gradient) : plan_(plan), first_(first_gradient) {}

  void made(int layer, int64_t bytes, int task, bool experts = false) {
    plan_.gradients.push_back({layer, bytes, task, experts});
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + bytes);
  }
  int64_t waiting() const { return (ends_.empty() ? 0 : ends_.back()) - sent_; }

  /// Sends the next bytes as a slice; returns the task that made the last of them.
  int send(int64_t bytes) {
    const auto holding = [&](int64_t byte) {
      return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), byte) - ends_.begin());
    };
    const size_t from = holding(sent_), to = holding(sent_ + bytes - 1);
    const int64_t offset = from == 0 ? 0 : ends_[from - 1];
    plan_.slices.push_back({static_cast<int>(first_ + from), sent_ - offset, sent_ + bytes - offset});
    sent_ += bytes;
    return plan_.gradients[first_ + to].made_by;
  }

 private:
  Plan& plan_;
  size_t first_;
  std::vector<int64_t> ends_;
  int64_t sent_ = 0;
};

class ModelBuilder {
 public:
  ModelBuilder(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision)
      : schedule_(schedule),
        model_(model),
        decision_(decision),
        cases_(model.shape, model.dense),
        stages_(model.shape.parallel.pp) {
    plan_.schedule = schedule.name;
    plan_.shape = model.shape;
    plan_.dense = model.dense.first(model.layers);
    plan_.groups = groups_of(model.shape.parallel);
    plan_.rows = padded_rows(model.shape);
    plan_.layers = model.layers;
    plan_.vocabulary = model.vocabulary;
    plan_.step = model.step;
    plan_.ends = model.ends;
    plan_.micro_batches = model.micro_batches;
    plan_.order = model.order;
    plan_.degree_forward = decision.degree_forward;
    const auto first = std::ranges::find_if(decision.backwards, [&](const BackwardDecision& b) {
      return !decides_dense(model, static_cast<size_t>(&b - decision.backwards.data()));
    });
    plan_.degree_backward = first->degree;
  }

  Plan build() {
    schedule::StageLanes::Networks networks{};
    for (size_t k = 0; k < networks.size(); ++k) networks[k] = plan_.groups[k].network;
    const int peers = plan_.groups[static_cast<size_t>(GroupKind::ep)].size;
    schedule::IterationBuilder builder(schedule_, {networks, peers, plan_.shape.layer.shared_hidden > 0, stages_,
                                                   plan_.shape.parallel.recompute == Recompute::full});
    // The stages' last backwards send; they are built last to first, each stage's as a block of gradients.
    for (const PipelineStep& step : pipeline_steps(model_.order, model_.micro_batches, stages_)) run(builder, step);
    if (plan_.step.planned) schedule::StepBuilder(plan_, builder).step();
    plan_.structure = std::make_shared<const Structure>(builder.take());
    set_works(plan_);
    return std::move(plan_);
  }

 private:
  void run(schedule::IterationBuilder& builder, const PipelineStep& step) {
    const int stage = step.stage;
    const auto [first, last] = layers_of_stage(model_, stage);
    schedule::Pass pass{.phase = step.phase, .stage = stage, .micro_batch = step.micro_batch};
    const bool embeds = model_.vocabulary > 0 && stage == 0, heads = model_.vocabulary > 0 && stage + 1 == stages_;
    if (step.phase == Phase::forward) {
      if (embeds) builder.embed(pass);
      pass.degree = decision_.degree_forward;
      pass.order = decision_.order_forward;
      for (pass.layer = first; pass.layer < last; ++pass.layer) {
        pass.dense = cases_.is_dense(pass.layer);
        forward_end_ = builder.add(pass);
      }
      pass.layer = last - 1;
      if (stage + 1 < stages_) builder.transfer(pass);
      if (heads) builder.head(pass);
      return;
    }
    pass.layer = last - 1;
    int end = forward_end_;
    if (heads) end = builder.head(pass);
    const bool sends = step.micro_batch + 1 == model_.micro_batches;
    Sender sender(plan_, plan_.gradients.size());
    if (sends && stage + 1 == stages_) made_by_end(model_.layers, model_.head_gradient_bytes, end, sender);
    for (pass.layer = last - 1; pass.layer >= first; --pass.layer) {
      const LayerCase& own_case = cases_.of(pass.layer);
      const size_t place_in_stage = static_cast<size_t>(last - 1 - pass.layer);
      const BackwardDecision& decided = decision_.backwards[first_decision(model_, stage) + place_in_stage];
      pass.dense = cases_.is_dense(pass.layer);
      pass.degree = sends ? decided.degree : decision_.degree_backward;
      pass.order = sends ? decided.order : decision_.order_backward;
      pass.gradients = {};
      pass.ready.clear();
      const size_t own = plan_.gradients.size();
      const std::vector<int64_t> experts = expert_gradient_pieces(schedule_, own_case, decision_.micro_op_bytes);
      if (sends && !experts.empty()) {
        sender.made(pass.layer, expert_gradient_bytes(own_case), schedule::kMadeHere, true);
        for (const int64_t bytes : experts) waiting_pieces_.push_back({bytes, true});
      }
      if (sends) place(decided, sender, pass);
      end = builder.add(pass);
      if (sends && !experts.empty()) plan_.gradients[own].made_by = builder.last_expert();
      if (!sends || plan_.shape.parallel.dp == 1) continue;
      sender.made(pass.layer, gradient_bytes(own_case), end);
      if (in_pieces(schedule_))
        for (const int64_t bytes : gradient_pieces(schedule_, own_case, decision_.micro_op_bytes))
          waiting_pieces_.push_back({bytes, false});
    }
    pass.layer = first;
    pass.gradients = {};
    if (stage > 0) builder.transfer(pass);
    const int embedded = embeds ? builder.embed(pass) : end;
    if (sends && stage == 0) made_by_end(kEmbeddingLayer, model_.embedding_gradient_bytes, embedded, sender);
    if (sends) finish(builder, stage, end, sender);
  }

  // Adds the gradient of the output projection or the embedding, one tensor.
  void made_by_end(int layer, int64_t bytes, int task, Sender& sender) {
    if (bytes == 0 || plan_.shape.parallel.dp == 1) return;
    sender.made(layer, bytes, task);
    if (!in_pieces(schedule_)) return;
    for (const int64_t piece : pieces_of(schedule_, {bytes}, decision_.micro_op_bytes, plan_.shape.layer.dtype))
      waiting_pieces_.push_back({piece, false});
  }

  void place(const BackwardDecision& decided, Sender& sender, schedule::Pass& pass) {
    const auto slice = [&](int64_t bytes, bool& slot) {
      require<BadInput>(bytes >= 0 && bytes <= sender.waiting(), "layer {}: found {} gradient bytes to send, {} wait",
                        pass.layer, bytes, sender.waiting());
      slot = bytes > 0;
      if (slot) pass.ready.push_back(sender.send(bytes));
    };
    slice(decided.gar_in_moe_bytes, pass.gradients.slots.in_moe);
    slice(decided.gar_beside_dense_bytes, pass.gradients.slots.beside_dense);
    if (!in_pieces(schedule_)) return;
    // Pieces of the layers before wait, and this one's experts; those that have a place here go, in order.
    pass.gradients.gaps = decided.gaps;
    if (schedule_.gradients != GradientPolicy::micro_ops)
      pass.gradients.gaps.assign(waiting_pieces_.size(), schedule_.gradients == GradientPolicy::fixed ? kAfterMoe : 0);
    require<BadInput>(pass.gradients.gaps.size() <= waiting_pieces_.size(),
                      "layer {}: found {} pieces to send, {} wait", pass.layer, pass.gradients.gaps.size(),
                      waiting_pieces_.size());
    send_pieces(pass.gradients.gaps.size(), sender, pass.ready, pass.gradients.experts);
  }

  // Sends the next `count` of the pieces that wait.
  void send_pieces(size_t count, Sender& sender, std::vector<int>& ready, std::vector<bool>& experts) {
    for (size_t i = 0; i < count; ++i) {
      ready.push_back(sender.send(waiting_pieces_[i].bytes));
      experts.push_back(waiting_pieces_[i].experts);
    }
    waiting_pieces_.erase(waiting_pieces_.begin(), waiting_pieces_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  // Finishes a stage. `end`: the last task of its backwards.
  void finish(schedule::IterationBuilder& builder, int stage, int end, Sender& sender) {
    std::vector<int> ready;
    std::vector<bool> experts;
    send_pieces(waiting_pieces_.size(), sender, ready, experts);
    if (sender.waiting() > 0) ready.push_back(sender.send(sender.waiting()));
    const auto [first, last] = layers_of_stage(model_, stage);
    if (plan_.step.planned) {
      const bool placed = !expert_gradient_pieces(schedule_, plan_.shape, decision_.micro_op_bytes).empty();
      return schedule::StepBuilder(plan_, builder).send_left({stage, end, !placed}, ready, experts);
    }
    builder.finish(stage, first, ready, experts);
    if (plan_.shape.parallel.zero > 0) builder.gather_weights(stage, {first, last}, plan_.dense);
  }

  const Schedule& schedule_;
  const ModelShape& model_;
  const ModelDecision& decision_;
  LayerCases cases_;
  int stages_;
  int forward_end_ = -1;  // the last task of the forward that was added last
  Plan plan_;
  struct Piece {
    int64_t bytes;
    bool experts;
  };
  std::vector<Piece> waiting_pieces_;  // of the stage whose gradients are being sent
};

}  // namespace

Plan timed_model_plan(const Schedule& schedule, const ModelShape& model, const ModelDecision& decision) {
  require<BadInput>(model.micro_batches >= 1, "micro-batches: found {}, expected >= 1", model.micro_batches);
  require<BadInput>(schedule.variants.empty(), "schedule {} chooses among others: it has no plans of its own",
                    schedule.name);
  require_equal<BadInput>(static_cast<int>(decision.backwards.size()), decided_layers(model),
                          "backward decisions of a stage");
  require<BadInput>(model.dense.in(0, model.layers) < model.layers,
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
    if (schedule.gradients != GradientPolicy::adaptive) {  // which has both places
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

}  // namespace moe
