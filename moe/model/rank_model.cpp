#include "moe/model/rank_model.h"

#include <cmath>

#include "moe/layer/weight_gather.h"

namespace moe {
namespace {

// Ranks of a stage that have the same part of a weight.
int holders(const Parameter& p, const ParallelShape& parallel) {
  switch (p.summed_over) {
    case SummedOver::dp:
      return parallel.dp;
    case SummedOver::edp:
      return parallel.edp;
    default:
      return parallel.ranks();
  }
}

}  // namespace

RankModel::RankModel(LayerStack& stack, Communicator& world, int64_t vocabulary, const LayerSeed& seed)
    : stack_(stack),
      everyone_(world.split(0, world.rank())),
      ends_(stack, vocabulary, seed),
      squares_({1}, DType::float64) {
  const ParallelShape stage = stage_case(stack.shape().shape).parallel;
  if (stage.zero == 0) return;
  gathers_ = LayerComms::split(*everyone_->split(stack.stage(), world.rank()), stage);
}

WeightShare RankModel::states_share(const Parameter& p) const {
  if (!gathers_) return weight_share(p.axes, 0, 1);
  const Communicator& alike = gathers_->of(p.summed_over == SummedOver::edp ? GroupKind::edp : GroupKind::dp);
  return weight_share(p.axes, alike.rank(), alike.size());
}

std::vector<Parameter> RankModel::parameters() {
  std::vector<Parameter> all = ends_.parameters();
  for (int layer = stack_.first_layer(); layer < stack_.last_layer(); ++layer)
    for (Parameter& p : stack_.cell(layer, 0).parameters()) {
      p.name = fmt::format("layer-{}.{}", layer, p.name);
      all.push_back(std::move(p));
    }
  return all;
}

void RankModel::train(const OptimizerSettings& settings) {
  settings_ = settings;
  std::vector<TrainedTensor> tensors;
  for (const Parameter& p : parameters()) {
    const bool matrix = p.axes[1].total > 1;  // gains and temperatures don't decay
    tensors.push_back({p.name, p.value.flat(), p.gradient.flat(), matrix, states_share(p).elements});
  }
  optimizer_.emplace(settings, std::move(tensors));
}

std::vector<ShardedTensor> RankModel::stored() {
  const std::vector<Parameter> weights = parameters();
  std::vector<ShardedTensor> all;
  for (const Parameter& p : weights) all.push_back({p.name, p.axes, p.value});
  for (const OptimizerState& state : optimizer_->states())
    all.push_back({state.name, states_share(weights[state.of]).axes, state.value});
  return all;
}

void RankModel::issue(const Task& task, Stream& stream) {
  const int micro_batch = task.micro_batch;
  const bool forward = task.phase == Phase::forward;
  if (task.kind == TaskKind::optimizer) return apart_ ? void() : finish_step(stream);
  if (task.kind == TaskKind::embed)
    stream.launch([=, this](void*) { forward ? ends_.embed(micro_batch) : ends_.embed_backward(micro_batch); });
  else
    stream.launch([=, this](void*) { forward ? ends_.head(micro_batch) : ends_.head_backward(micro_batch); });
}

void RankModel::finish_step(Stream& stream) {
  stack_.finish_gradients(stream);
  ends_.finish_gradients(stream);
  if (!optimizer_) return;
  const bool clips = settings_.clip_norm > 0;
  if (clips) {
    stream.launch([this](void*) { *squares_.as<double>() = own_squares(); });
    if (everyone_->size() > 1)
      everyone_->allreduce(squares_.as<double>(), 1, DType::float64, {stream, {}, "norm of all gradients"});
  }
  stream.launch([this, clips](void*) {
    optimizer_->step(steps_++, clips ? clip_scale(std::sqrt(*squares_.as<double>()), settings_.clip_norm) : 1);
  });
  if (gathers_) gather_weights(stream);
}

// What the plan's tasks behind the step don't: the gates', the norms' and the ends'; all where no such tasks follow.
void RankModel::gather_weights(Stream& stream) {
  for (const Parameter& p : parameters())
    if (p.summed_over == SummedOver::stage)
      moe::gather_weights({&p, 1}, {}, gathers_->of(GroupKind::dp), cpu_math(),
                          {stream, {}, "weights of gate, norms and ends"});
  if (!apart_) return;
  for (int layer = stack_.first_layer(); layer < stack_.last_layer(); ++layer)
    for (const GroupKind group : {GroupKind::dp, GroupKind::edp})
      stack_.gather_weights(layer, group, gathers_->of(group), {stream, {}, "weights of a layer"});
}

double RankModel::own_squares() {
  const ParallelShape parallel = stage_case(stack_.shape().shape).parallel;
  double sum = 0;
  for (const Parameter& p : parameters()) sum += sum_of_squares(p.gradient) / holders(p, parallel);
  return sum;
}

}  // namespace moe
