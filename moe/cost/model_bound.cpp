#include "moe/cost/model_bound.h"

#include <algorithm>
#include <optional>

#include "moe/cost/step_prices.h"

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

struct LayersOfStage {
  int moe = 0, dense = 0;
};

// Counts the layers of each kind in the stage that has fewest.
LayersOfStage fewest_layers(const ModelShape& model) {
  const int stages = model.shape.parallel.pp;
  if (model.dense.none(model.layers)) return {model.layers / stages, 0};
  LayersOfStage fewest{model.layers, model.layers};
  for (int stage = 0; stage < stages; ++stage)
    fewest = {std::min(fewest.moe, model.moe_in(stage)), std::min(fewest.dense, model.dense_in(stage))};
  return fewest;
}

// Holds the earliest ends of one stage's passes: of its last task on each lane, and behind them of the chain that is
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

 private:
  std::vector<double> ends_, next_;
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
        stages_(static_cast<size_t>(model.shape.parallel.pp), Stage(bounds_.forward.size() - 1)),
        ended_(stages_.size(), std::vector<std::array<double, 2>>(static_cast<size_t>(model.micro_batches))) {
    if (model.dense.none(model.layers)) return;
    dense_.emplace(pricer.profile(), dense_case(pricer.shape(), model.dense.hidden), pricer.options());
    dense_bounds_ = layer_bounds(schedule, *dense_, {}, shapes);
  }

  double run() {
    for (const PipelineStep& step : pipeline_steps(model_.order, model_.micro_batches, model_.shape.parallel.pp))
      run(step);
    for (const Stage& stage : stages_) end_ = std::max(end_, stage.end());
    if (!model_.step.planned) return end_ + pricer_.dense_seconds(TaskKind::optimizer, Phase::backward) + gathers_s();
    return end_ + step_least_seconds(schedule_, pricer_, model_);
  }

 private:
  // Counts the gathers of the stage with fewest layers. The shorter of DP's and EDP's hides behind the longer.
  double gathers_s() const {
    const ParallelShape& p = model_.shape.parallel;
    if (p.zero == 0) return 0;
    const auto weights = [&](const LayerPricer& of) {
      return p.dp > 1 ? of.dense_seconds(TaskKind::weights, Phase::backward) : 0;
    };
    const double experts = p.edp > 1 ? pricer_.dense_seconds(TaskKind::expert_weights, Phase::backward) : 0;
    const LayersOfStage fewest = fewest_layers(model_);
    return fewest.moe * std::max(weights(pricer_), experts) + (dense_ ? fewest.dense * weights(*dense_) : 0);
  }

  // A forward follows that of the stage before, a backward its own forward and the backward of the stage behind.
  double ready(const PipelineStep& step) const {
    const size_t s = static_cast<size_t>(step.stage), m = static_cast<size_t>(step.micro_batch);
    if (step.phase == Phase::forward) return s == 0 ? 0 : ended_[s - 1][m][0] + bounds_.send_forward_s;
    const double forward = ended_[s][m][0];
    return s + 1 == stages_.size() ? forward : std::max(forward, ended_[s + 1][m][1] + bounds_.send_backward_s);
  }

  void run(const PipelineStep& step) {
    Stage& stage = stages_[static_cast<size_t>(step.stage)];
    stage.begin_chain(ready(step));
    const auto [first, last] = layers_of_stage(model_, step.stage);
    const bool sends = step.phase == Phase::backward && step.micro_batch + 1 == model_.micro_batches;
    double first_made = 0;
    for (int i = 0; i < last - first; ++i) {
      const bool forward = step.phase == Phase::forward;
      const LayerBounds& bounds = of(forward ? first + i : last - 1 - i);
      if (!forward && pricer_.outline().recomputes) stage.pass(bounds.forward);
      stage.pass(forward ? bounds.forward : bounds.backward);
      if (i == 0) first_made = stage.chain();
    }
    ended_[static_cast<size_t>(step.stage)][static_cast<size_t>(step.micro_batch)][static_cast<size_t>(step.phase)] =
        stage.chain();
    if (sends && bounds_.gradient_lane >= 0) send(step.stage, first_made, stage.chain());
  }

  // No gradient of a stage exists before the first layer of its last backward has ended. Whatever that lane runs of the
  // layers behind begins no earlier either. The embedding's are made last of all. Policy `after` sends all of them in
  // one slice once the last layer has ended. (The head's are made before all layers: left out where they may hide.)
  void send(int stage, double first_made, double last_made) {
    const int64_t embedding = stage == 0 ? model_.embedding_gradient_bytes : 0;
    const int moe = model_.moe_in(stage), dense = model_.dense_in(stage);
    int64_t bytes = moe * pricer_.gradient_bytes() + embedding;
    if (dense > 0) bytes += dense * dense_->gradient_bytes();
    const bool dense_first = model_.dense.has(layers_of_stage(model_, stage).second - 1);
    double beside_s = (dense_first ? moe : moe - 1) * bounds_.beside_gradients_s;
    if (dense > 0) beside_s += (dense_first ? dense - 1 : dense) * dense_bounds_.beside_gradients_s;
    end_ = std::max(end_, first_made + beside_s + pricer_.gradient_seconds_in_parts(bytes));
    if (embedding > 0) end_ = std::max(end_, last_made + pricer_.gradient_seconds_in_parts(embedding));
    if (schedule_.gradients == GradientPolicy::after)
      end_ = std::max(end_, last_made + pricer_.gradient_seconds(bytes));
  }

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const ModelShape& model_;
  const LayerBounds& of(int layer) const { return model_.dense.has(layer) ? dense_bounds_ : bounds_; }

  LayerBounds bounds_, dense_bounds_;
  std::optional<LayerPricer> dense_;
  std::vector<Stage> stages_;
  std::vector<std::vector<std::array<double, 2>>> ended_;  // by stage and micro-batch: forward, backward
  double end_ = 0;
};

}  // namespace

double step_least_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) {
  const LayerCase& c = model.shape;
  const LayersOfStage fewest = fewest_layers(model);
  const double layers = fewest.moe + fewest.dense, moe = fewest.moe;
  const auto sum = [&](GroupKind kind, TaskKind of, double bytes) {
    return pricer.has(kind) ? cost::step_seconds(pricer, of, {Op::allreduce, kind, bytes, 0, 0}) : 0;
  };
  const auto network = [&](GroupKind kind) { return pricer.groups()[static_cast<size_t>(kind)].network; };
  double alike = moe * static_cast<double>(stage_gradient_bytes(c));
  std::optional<LayerCase> dense;
  if (!model.dense.none(model.layers)) dense = dense_case(c, model.dense.hidden);
  if (dense) alike += fewest.dense * static_cast<double>(stage_gradient_bytes(*dense));
  // Where the first layer is dense and has no norms, sums may run beside its backward.
  const bool sums_behind = alike > 0 && (!dense || c.layer.norm != Norm::none);
  double seconds = sums_behind ? sum(GroupKind::stage, TaskKind::stage_gradient, alike) : 0;
  // Experts' sums are behind the stage's, on its lane, and behind nothing on another one.
  const bool one_lane =
      network(GroupKind::edp) == network(GroupKind::stage) && schedule.lanes != LaneLayout::by_network_gradient;
  if (sums_behind && one_lane && !schedule.packs_experts)
    seconds += moe * sum(GroupKind::edp, TaskKind::expert_gradient, static_cast<double>(expert_gradient_bytes(c)));
  if (model.step.clips) seconds += sum(GroupKind::world, TaskKind::norm, sizeof(double));
  const bool counts_ends = model.head_gradient_bytes > 0 || model.embedding_gradient_bytes > 0;
  if (model.step.optimizer && !counts_ends) {  // else an end's may be the last, and short
    double bytes = optimizer_bytes(c, step_weights(c), *model.step.optimizer);
    if (dense) bytes = std::min(bytes, optimizer_bytes(c, step_weights(*dense), *model.step.optimizer));
    const double each = cost::step_seconds(pricer, TaskKind::optimizer, {Op::copy, GroupKind::none, bytes, 0, 0});
    seconds += (model.step.clips ? layers : 1) * each;
  }
  if (!pricer.has(GroupKind::mp)) return seconds;
  const bool own = traits_of(schedule.flow).holds == Tokens::own;
  const TaskKind behind = own ? TaskKind::mp_reducescatter : TaskKind::mp_allreduce;
  return std::max(0.0, seconds - pricer.dense_seconds(behind, Phase::backward, schedule.flow));
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
