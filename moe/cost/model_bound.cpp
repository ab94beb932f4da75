#include "moe/cost/model_bound.h"

#include <algorithm>

#include "moe/cost/pricer.h"

namespace moe {
namespace {

struct LayerBounds {
  Crossings forward, backward;
  double send_forward_s = 0, send_backward_s = 0;
  int gradient_lane = -1;
  double beside_gradients_s = 0;  // of a backward, on the gradients' lane
};

LayerBounds layer_bounds(const Schedule& schedule, const LayerPricer& pricer, BoundedDegrees degrees,
                         BoundShapes& shapes) {
  const BoundShape& forward = shapes.get(schedule, pricer.outline(), Phase::forward);
  BoundShape backward = shapes.get(schedule, pricer.outline(), Phase::backward);
  LayerBounds bounds;
  std::swap(bounds.gradient_lane, backward.gradient_lane);
  const PhaseBound f(schedule, forward, pricer), b(schedule, backward, pricer);
  bounds.forward = f.crossings(degrees);
  bounds.backward = b.crossings(degrees);
  if (bounds.gradient_lane >= 0) bounds.beside_gradients_s = b.busy(bounds.gradient_lane);
  if (!pricer.has(GroupKind::pp)) return bounds;
  const auto transfer = [&](Phase phase) {
    return pricer.dense_seconds(TaskKind::send, phase, schedule.flow) +
           pricer.dense_seconds(TaskKind::recv, phase, schedule.flow);
  };
  bounds.send_forward_s = transfer(Phase::forward);
  bounds.send_backward_s = transfer(Phase::backward);
  return bounds;
}

// The earliest ends of one stage's passes: of its last task on each lane, and behind them of the chain that is
// followed.
class Stage {
 public:
  explicit Stage(size_t lanes) : ends_(lanes + 1), next_(lanes + 1) {}

  void begin_chain(double at) { ends_.back() = at; }
  double chain() const { return ends_.back(); }

  // Adds a layer's pass. A lane is a FIFO, and passes are issued whole: its first task waits for the pass before on its
  // lane. The chain's first task waits for the chain. So each end is at least any of those plus what lies between.
  void pass(const Crossings& crossings) {
    for (size_t b = 0; b < ends_.size(); ++b) {
      next_[b] = b + 1 == ends_.size() ? 0 : ends_[b];  // what no task of this pass uses stays as it is
      for (size_t a = 0; a < ends_.size(); ++a) next_[b] = std::max(next_[b], ends_[a] + crossings[a][b]);
    }
    ends_.swap(next_);
  }
  double end() const { return *std::ranges::max_element(ends_); }

  double first_made = 0;  // the end of the first layer of its last micro-batch's backward

 private:
  std::vector<double> ends_, next_;
};

/// Seconds in which a stage's DP groups gather the weights that ZeRO 1 shards, and its EDP groups the experts'.
struct StageGathers {
  StageGathers(const LayerPricer& pricer, const LayerPricer* dense, const ModelShape& model, int stage) {
    const ParallelShape& p = model.shape.parallel;
    if (p.zero == 0) return;
    const int moe = model.moe_in(stage);
    if (p.edp > 1) edp_s = moe * pricer.dense_seconds(TaskKind::expert_weights, Phase::backward);
    if (p.dp == 1) return;
    dp_s = moe * pricer.dense_seconds(TaskKind::weights, Phase::backward);
    if (dense != nullptr) dp_s += model.dense_in(stage) * dense->dense_seconds(TaskKind::weights, Phase::backward);
  }
  double dp_s = 0, edp_s = 0;
};

class ModelBound {
 public:
  ModelBound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundedDegrees degrees,
             BoundShapes& shapes)
      : schedule_(schedule),
        pricer_(pricer),
        model_(model),
        bounds_(layer_bounds(schedule, pricer, degrees, shapes)),
        dense_bounds_(bounds_),
        split_(model.split()),
        stages_(static_cast<size_t>(split_.stages), Stage(bounds_.forward.size() - 1)),
        sent_(stages_.size()),
        ended_(static_cast<size_t>(split_.chunks()),
               std::vector<std::array<double, 2>>(static_cast<size_t>(model.micro_batches))) {
    if (model.dense.none(model.layers)) return;
    dense_ = &pricer.dense(model.dense.hidden);
    dense_bounds_ = layer_bounds(schedule, *dense_, {}, shapes);
  }

  double run() {
    for (const PipelineStep& step : pipeline_steps(model_.order, model_.micro_batches, split_)) run(step);
    double end_s = 0;
    for (size_t s = 0; s < stages_.size(); ++s)
      end_s = std::max(end_s, std::max(stages_[s].end(), sent_[s]) + step_s(static_cast<int>(s)));
    return end_s;
  }

 private:
  // Returns what follows a stage's passes and gradients at least.
  double step_s(int stage) const {
    if (model_.step.planned) return step_least_seconds(schedule_, pricer_, model_, stage);
    const StageGathers gathers(pricer_, dense_, model_, stage);
    return pricer_.dense_seconds(TaskKind::optimizer, Phase::backward) + std::max(gathers.dp_s, gathers.edp_s);
  }

  // A forward follows that of the chunk before, a backward its own forward and the backward of the chunk behind.
  double ready(const PipelineStep& step) const {
    const size_t c = static_cast<size_t>(step.chunk), m = static_cast<size_t>(step.micro_batch);
    if (step.phase == Phase::forward) return c == 0 ? 0 : ended_[c - 1][m][0] + bounds_.send_forward_s;
    const double forward = ended_[c][m][0];
    return c + 1 == ended_.size() ? forward : std::max(forward, ended_[c + 1][m][1] + bounds_.send_backward_s);
  }

  void run(const PipelineStep& step) {
    Stage& stage = stages_[static_cast<size_t>(step.stage(split_))];
    stage.begin_chain(ready(step));
    const auto [first, last] = layers_of_chunk(split_, step.chunk);
    const bool sends = step.phase == Phase::backward && step.micro_batch + 1 == model_.micro_batches;
    for (int i = 0; i < last - first; ++i) {
      const bool forward = step.phase == Phase::forward;
      const LayerBounds& bounds = of(forward ? first + i : last - 1 - i);
      if (!forward && pricer_.outline().recomputes) stage.pass(bounds.forward);
      stage.pass(forward ? bounds.forward : bounds.backward);
      const bool of_last_chunk = step.chunk + split_.stages >= split_.chunks();
      if (i == 0 && sends && of_last_chunk) stage.first_made = stage.chain();
    }
    ended_[static_cast<size_t>(step.chunk)][static_cast<size_t>(step.micro_batch)][static_cast<size_t>(step.phase)] =
        stage.chain();
    if (sends && step.chunk < split_.stages && bounds_.gradient_lane >= 0)
      send(step.chunk, stage.first_made, stage.chain());
  }

  // No gradient of a stage exists before the first layer of its last backward has ended. Whatever that lane runs of the
  // layers behind begins no earlier either. The embedding's are made last of all. Policy `after` sends all of them in
  // one slice once the last layer has ended. (The head's are made before all layers: left out where they may hide.)
  void send(int stage, double first_made, double last_made) {
    const int64_t embedding = stage == 0 ? model_.embedding_gradient_bytes : 0;
    const int moe = model_.moe_in(stage), dense = model_.dense_in(stage);
    int64_t bytes = moe * pricer_.gradient_bytes() + embedding;
    if (dense > 0) bytes += dense * dense_->gradient_bytes();
    const bool dense_first = model_.dense.has(nth_backward(split_, stage, 0));
    double beside_s = (dense_first ? moe : moe - 1) * bounds_.beside_gradients_s;
    if (dense > 0) beside_s += (dense_first ? dense - 1 : dense) * dense_bounds_.beside_gradients_s;
    double& sent = sent_[static_cast<size_t>(stage)];
    sent = first_made + beside_s + pricer_.gradient_seconds_in_parts(bytes);
    if (embedding > 0) sent = std::max(sent, last_made + pricer_.gradient_seconds_in_parts(embedding));
    if (schedule_.gradients == GradientPolicy::after)
      sent = std::max(sent, last_made + pricer_.gradient_seconds(bytes));
  }

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const ModelShape& model_;
  const LayerBounds& of(int layer) const { return model_.dense.has(layer) ? dense_bounds_ : bounds_; }

  LayerBounds bounds_, dense_bounds_;
  const LayerPricer* dense_ = nullptr;
  StageSplit split_;
  std::vector<Stage> stages_;
  std::vector<double> sent_;                               // by stage: the end of its gradients
  std::vector<std::vector<std::array<double, 2>>> ended_;  // by chunk and micro-batch: forward, backward
};

}  // namespace

double step_least_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int stage) {
  const LayerCase& c = model.shape;
  const int moe = model.moe_in(stage), dense_layers = model.dense_in(stage);
  const auto sum = [&](GroupKind kind, TaskKind of, double bytes) {
    return pricer.has(kind) ? cost::step_seconds(pricer, of, {Op::allreduce, kind, bytes, 0, 0}) : 0;
  };
  const auto network = [&](GroupKind kind) { return pricer.groups()[static_cast<size_t>(kind)].network; };
  const LayerPricer* dense = dense_layers > 0 ? &pricer.dense(model.dense.hidden) : nullptr;
  double alike = static_cast<double>(moe * stage_gradient_bytes(c));
  if (dense) alike += static_cast<double>(dense_layers * stage_gradient_bytes(dense->shape()));
  // Where the first layer is dense and has no norms, sums may run beside its backward.
  const bool sums_behind = alike > 0 && (!dense || c.layer.norm != Norm::none);
  double seconds = sums_behind ? sum(GroupKind::stage, TaskKind::stage_gradient, alike) : 0;
  // What else is on the stage's lane is behind its sum, and behind nothing on another lane.
  const bool one_lane = sums_behind && schedule.lanes != LaneLayout::by_network_gradient;
  const auto behind = [&](GroupKind kind) { return one_lane && network(kind) == network(GroupKind::stage); };
  if (behind(GroupKind::edp) && !schedule.packs_experts)
    seconds += moe * sum(GroupKind::edp, TaskKind::expert_gradient, static_cast<double>(expert_gradient_bytes(c)));
  if (model.step.clips) seconds += sum(GroupKind::world, TaskKind::norm, sizeof(double));
  const bool counts_ends = model.head_gradient_bytes > 0 || model.embedding_gradient_bytes > 0;
  double optimizer_s = 0;                      // of a layer
  if (model.step.optimizer && !counts_ends) {  // else an end's may be the last, and short
    double bytes = optimizer_bytes(c, step_weights(c), *model.step.optimizer);
    if (dense) bytes = std::min(bytes, optimizer_bytes(c, step_weights(dense->shape()), *model.step.optimizer));
    optimizer_s = cost::step_seconds(pricer, TaskKind::optimizer, {Op::copy, GroupKind::none, bytes, 0, 0});
  }
  // Gathers are behind the sums of their lane. All optimizers are behind a norm, and each gather behind one of them.
  const StageGathers gathers(pricer, dense, model, stage);
  const double counted_s = std::max(model.step.clips || behind(GroupKind::dp) ? gathers.dp_s : 0,
                                    model.step.clips || behind(GroupKind::edp) ? gathers.edp_s : 0);
  if (model.step.clips)
    seconds += std::max((moe + dense_layers) * optimizer_s, optimizer_s + counted_s);
  else
    seconds += std::max(optimizer_s, counted_s);
  if (!pricer.has(GroupKind::mp)) return seconds;
  const bool own = traits_of(schedule.flow).holds == Tokens::own;
  const TaskKind last = own ? TaskKind::mp_reducescatter : TaskKind::mp_allreduce;
  return std::max(0.0, seconds - pricer.dense_seconds(last, Phase::backward, schedule.flow));
}

double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   BoundedDegrees degrees) {
  BoundShapes shapes;
  return model_bound(schedule, pricer, model, degrees, shapes);
}

double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundedDegrees degrees,
                   BoundShapes& shapes) {
  return ModelBound(schedule, pricer, model, degrees, shapes).run();
}

}  // namespace moe
