#include "moe/model/rank_model.h"

#include <cmath>

#include "moe/layer/gradient_sums.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

// Returns the number of ranks of a stage that have the same part of a weight.
int holders(const Parameter& p, const ParallelShape& parallel) {
  switch (p.summed_over) {
    case SummedOver::dp:
      return parallel.replicas();
    case SummedOver::edp:
      return parallel.edp;
    default:
      return parallel.ranks();
  }
}

}  // namespace

RankModel::RankModel(LayerStack& stack, Communicator& world, int64_t vocabulary, const StepShape& step,
                     const LayerSeed& seed)
    : stack_(stack),
      world_comm_(world.split(0, world.rank())),
      ends_(stack, vocabulary, step.tied, seed),
      step_(step),
      squares_({1}, DType::float64, math().memory()) {
  const ParallelShape stage = stage_case(stack.shape().shape).parallel;
  if (step.tied && stack.shape().shape.parallel.pp > 1)
    ends_link_ = world_comm_->split(ends_.tied_gradient() ? world.rank() % stage.ranks() : -1, world.rank());
  if (stage.zero == 0) return;
  gathers_ = LayerComms::split(*world_comm_->split(stack.stage(), world.rank()), stage);
}

WeightShare RankModel::states_share(const Parameter& p) const {
  if (!gathers_) return weight_share(p.axes, 0, 1);
  const Communicator& alike = gathers_->communicator(p.summed_over == SummedOver::edp ? GroupKind::edp : GroupKind::dp);
  return weight_share(p.axes, alike.rank(), alike.size());
}

std::vector<Parameter> RankModel::parameters() {
  std::vector<Parameter> all = ends_.parameters();
  for (const int layer : stack_.layers())
    for (Parameter& p : parameters_of(layer)) all.push_back(std::move(p));
  return all;
}

std::vector<Parameter> RankModel::parameters_of(int layer) {
  if (is_end_layer(layer)) return ends_.parameters(layer);
  std::vector<Parameter> all = stack_.cell(layer, 0).parameters();
  for (Parameter& p : all) p.name = fmt::format("layer-{}.{}", layer, p.name);
  return all;
}

std::vector<Parameter> RankModel::parameters_stepped_on(Offload where, int layer) {
  std::vector<Parameter> all = parameters_of(layer);
  std::erase_if(all, [&](const Parameter& p) {
    const bool on_host = offloads() && p.summed_over == SummedOver::edp;
    return on_host != (where == Offload::experts);
  });
  return all;
}

void RankModel::train(const OptimizerSettings& settings) {
  require<BadInput>(settings.clip_norm == 0 || step_.clips,
                    "clip_norm: found {}, but the plan computes no norm to clip by", settings.clip_norm);
  settings_ = settings;
  std::vector<int> trained = stack_.layers();
  trained.insert(trained.end(), {kEmbeddingLayer, stack_.shape().layers});
  for (const Offload where : {Offload::none, Offload::experts}) {
    optimizers_[where].clear();
    for (const int layer : trained) {
      std::vector<TrainedTensor> tensors;
      for (const Parameter& p : parameters_stepped_on(where, layer)) {
        const bool matrix = p.axes[1].total > 1;  // gains and temperatures don't decay
        TensorView gradient = p.gradient.flat();
        if (where == Offload::experts) gradient = host_gradient(gradient);
        tensors.push_back({p.name, p.value.flat(), gradient, matrix, states_share(p).elements});
      }
      if (where == Offload::none || !tensors.empty())
        optimizers_[where].try_emplace(layer, settings, std::move(tensors),
                                       where == Offload::none ? math() : cpu_math());
    }
  }
}

TensorView RankModel::host_gradient(TensorView gradient) const {
  const TensorView device = stack_.expert_gradients(), host = stack_.host_gradients();
  const auto first = gradient.as<std::byte>() - device.as<std::byte>();
  return gradient.moved_to(host.as<std::byte>() + first, host.device(), gradient.dtype());
}

std::vector<ShardedTensor> RankModel::stored_tensors() {
  std::vector<ShardedTensor> all;
  for (const Parameter& p : parameters()) all.push_back({p.name, p.axes, p.value});
  for (const Offload where : {Offload::none, Offload::experts})
    for (const auto& [layer, optimizer] : optimizers_[where]) {
      const std::vector<Parameter> weights = parameters_stepped_on(where, layer);
      for (const OptimizerState& state : optimizer.states())
        all.push_back({state.name, states_share(weights[state.of]).axes, state.value});
    }
  return all;
}

void RankModel::issue(const Task& task, CommCall call) {
  if (is_end(task.kind)) return ends_.issue(task, call);
  const int layer = task.layer;
  Stream& stream = call.stream;
  switch (task.kind) {
    case TaskKind::stage_gradient:
      return ends_.sum_norm(layer, call);
    case TaskKind::tied_gradient: {
      const TensorView own = ends_.tied_gradient().value();
      return ends_link_->allreduce(own.data(), own.elements(), own.dtype(), call);
    }
    case TaskKind::squares:
      return stream.launch([this](void* native) { add_own_squares(native); });
    case TaskKind::norm:
      return world_comm_->allreduce(squares_.as<double>(), 1, DType::float64, call);
    case TaskKind::stage_weights:
      return gather_end(layer, stack_.comms().communicator(GroupKind::dp), call);
    case TaskKind::optimizer:
      return stream.launch([this, layer](void* native) {
        math().use(native);
        if (!step_.clips) count_experts_once(layer);
        if (!apart_) step_layer(Offload::none, layer);
      });
    case TaskKind::host_optimizer:
      return stream.launch([this, layer](void*) {
        if (!apart_) step_layer(Offload::experts, layer);
      });
    default:
      throw WrongResult(fmt::format("{}: a task that no model has", task.name()));
  }
}

void RankModel::count_experts_once(int layer) {
  if (layer >= 0 && layer < stack_.shape().layers && !offloads()) stack_.count_once(layer);
}

void RankModel::step_layer(Offload where, int layer) {
  const auto found = optimizers_[where].find(layer);
  if (found == optimizers_[where].end()) return;
  found->second.step(steps_, 1, squares_.as<double>());
}

void RankModel::end_pass() {
  if (optimizers_[Offload::none].empty()) return;
  ++steps_;
  if (settings_.clip_norm == 0) return;
  const double norm = std::sqrt(*HostCopy(squares_, math().memory()).view().as<double>());
  require<WrongResult>(std::isfinite(norm), "norm of the gradients: found {}, expected a finite number", norm);
}

// Takes a step between passes, followed by the AllGathers of weights that a plan would run after its step.
void RankModel::step(Stream& stream) {
  stream.launch([this](void* native) {
    math().use(native);
    for (const Offload where : {Offload::none, Offload::experts})
      for (const auto& [layer, optimizer] : optimizers_[where]) step_layer(where, layer);
  });
  if (!gathers_) return;
  Communicator& dp = gathers_->communicator(GroupKind::dp);
  for (const int layer : {kEmbeddingLayer, stack_.shape().layers})
    gather_end(layer, dp, {stream, {}, "weights of a model's end"});
  stack_.gather_replicated(dp, {stream, {}, "weights of gates and norms"});
  for (const int layer : stack_.layers())
    for (const SummedOver over : {SummedOver::dp, SummedOver::edp})
      stack_.gather_weights(layer, over,
                            gathers_->communicator(over == SummedOver::dp ? GroupKind::dp : GroupKind::edp),
                            {stream, {}, "weights of a layer"});
}

void RankModel::gather_end(int layer, Communicator& dp, CommCall call) {
  for (const Parameter& p : ends_.parameters(layer)) {
    moe::gather_weights({&p, 1}, {}, dp, math(), call);
    call.pace = {};  // the first gather is held for the modelled time of all of them
  }
}

void RankModel::add_own_squares(void* native) {
  math().use(native);
  for (const int layer : stack_.layers()) count_experts_once(layer);
  const ParallelShape parallel = stage_case(stack_.shape().shape).parallel;
  math().memory().clear(squares_.as<double>(), sizeof(double), native);
  const bool copy = ends_.heads() && ends_.tied_gradient();  // the stage of the other end counts it
  for (const Parameter& p : parameters())
    if (!copy || p.name != model::kEmbedding)
      math().add_squares(p.gradient, holders(p, parallel), squares_.as<double>());
}

ModelReference reference_model(const RankCells& rank, const StackChoices& choices, const ModelEnds& of,
                               const SampleTokens& tokens) {
  const MoeLayer& any = rank.front();
  LayerSeed seed = any.seed();
  seed.layer = seed.micro_batch = 0;
  const LayerCase& shape = any.shape().shape;
  const int64_t parts = shape.layer.parts, seq = shape.layer.seq;
  const int64_t samples = any.shape().tokens.total * parts / seq;
  ReferenceEnds ends{of.vocabulary(), of.tied()};
  for (size_t mb = 0; mb < choices.front().size(); ++mb) {
    auto& inputs = ends.inputs.emplace_back(static_cast<size_t>(any.shape().tokens.total));
    auto& targets = ends.targets.emplace_back(inputs.size());
    std::vector<int32_t> all_inputs(samples * seq), all_targets(all_inputs.size());
    for (int64_t s = 0; s < samples; ++s) {
      const auto of_sample = [&](std::vector<int32_t>& all) {
        return std::span(all).subspan(static_cast<size_t>(s * seq), static_cast<size_t>(seq));
      };
      tokens(static_cast<int64_t>(mb) / parts * samples + s, of_sample(all_inputs), of_sample(all_targets));
    }
    const LayerCase part = part_case(shape, static_cast<int>(static_cast<int64_t>(mb) % parts));
    for (size_t t = 0; t < inputs.size(); ++t) {
      const auto from = static_cast<size_t>(sample_order_index(part, static_cast<int64_t>(t)));
      inputs[t] = all_inputs[from];
      targets[t] = all_targets[from];
    }
  }
  return reference_model(rank.cases, static_cast<int>(choices.size()), seed, ends, choices_to_follow(rank, choices));
}

std::vector<TensorError> end_errors(ModelEnds& ends, const ModelReference& reference) {
  return gradient_errors(ends.parameters(), ends.memory(), reference.gradients, reference.sizes);
}

}  // namespace moe
