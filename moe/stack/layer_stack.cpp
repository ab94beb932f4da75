#include "moe/stack/layer_stack.h"

#include <utility>

#include "moe/base/check.h"
#include "moe/layer/weight_gather.h"
#include "moe/plan/pipeline.h"
#include "moe/plan/volumes.h"

namespace moe {
namespace {

LayerComms comms_of_stage(Communicator& world, const LayerCase& stage) {
  const std::unique_ptr<Communicator> own = world.split(world.rank() / stage.parallel.ranks(), world.rank());
  return LayerComms::split(*own, stage.parallel);
}

}  // namespace

StackShape stack_shape(const Plan& plan) { return {plan.shape, plan.structure->flow, plan.layers, plan.micro_batches}; }

LayerCase stage_case(LayerCase shape) {
  ParallelShape& p = shape.parallel;
  const int ranks = p.ranks() / p.pp, inside = std::min(ranks, p.ranks_per_node);
  require<Unsupported>(ranks % inside == 0 && p.ranks_per_node % inside == 0,
                       "pp = {}: a stage of {} ranks is neither whole nodes of {} nor an equal part of one", p.pp,
                       ranks, p.ranks_per_node);
  p.pp = 1;
  p.nodes = ranks / inside;
  p.ranks_per_node = inside;
  return shape;
}

LayerStack::LayerStack(const StackShape& shape, int rank, const LayerSeed& seed, Communicator& world,
                       LayerDevice& device)
    : shape_(shape),
      stage_(place_in(shape.shape.parallel, GroupKind::pp, rank)),
      links_(world, shape.shape.parallel),
      comms_(comms_of_stage(world, stage_case(shape.shape))) {
  const LayerCase own = stage_case(shape.shape);
  const RankShape place = rank_shape(own, rank % own.parallel.ranks(), shape.flow);
  const auto [first, last] = layers_of_stage(shape.layers, shape.shape.parallel.pp, stage_);
  first_ = first;
  const int64_t layers = last - first, width = bytes_of(own.layer.dtype);
  const int64_t dense = gradient_bytes(own) / width, experts = expert_gradient_bytes(own) / width;
  MemorySpace& memory = device.math().memory();
  dense_gradients_ = Tensor({layers * dense}, own.layer.dtype, memory);
  expert_gradients_ = Tensor({layers * experts}, own.layer.dtype, memory);
  for (int layer = first; layer < last; ++layer) {
    LayerLinks links;
    const int64_t from_last = last - 1 - layer;
    const TensorView dense_part = dense_gradients_.view().part(from_last * dense, {dense});
    links.weights->lend(kDenseGradients, dense_part);
    links.weights->lend(kDenseGradientsBefore, dense_part);
    links.weights->lend(kExpertGradients, expert_gradients_.view().part(from_last * experts, {experts}));
    auto& cells = cells_.emplace_back();
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      LayerSeed of_cell = seed;
      of_cell.layer += static_cast<uint64_t>(layer);
      of_cell.micro_batch = static_cast<uint64_t>(micro_batch);
      links.before = layer > first ? &cell(layer - 1, micro_batch).state().buffers : nullptr;
      cells.push_back(std::make_unique<MoeLayer>(place, of_cell, comms_, device, links));
    }
  }
  if (own.parallel.zero == 0) return;
  for (const auto& [group, gathered] :
       {std::pair{GroupKind::dp, &dense_gathered_}, {GroupKind::edp, &experts_gathered_}})
    if (comms_.of(group).size() > 1)
      *gathered = Tensor({elements_of(held_alike(first_, group))}, own.layer.dtype, memory);
}

std::vector<Parameter> LayerStack::held_alike(int layer, GroupKind group) const {
  std::vector<Parameter> weights = cell(layer, 0).parameters();
  const SummedOver over = group == GroupKind::edp ? SummedOver::edp : SummedOver::dp;
  std::erase_if(weights, [&](const Parameter& p) { return p.summed_over != over; });
  return weights;
}

void LayerStack::gather_weights(int layer, GroupKind group, Communicator& comm, CommCall call) {
  const Tensor& gathered = group == GroupKind::edp ? experts_gathered_ : dense_gathered_;
  moe::gather_weights(held_alike(layer, group), gathered, comm, cell(layer, 0).state().math(), call);
}

RankCells LayerStack::cells() const {
  std::vector<std::vector<MoeLayer*>> all;
  for (const auto& layer : cells_) {
    auto& of_layer = all.emplace_back();
    for (const auto& cell : layer) of_layer.push_back(cell.get());
  }
  return {first_, std::move(all)};
}

void LayerStack::finish_gradients(Stream& stream) {
  for (const auto& layer : cells_) {
    layer.front()->state().experts_summed = experts_summed_;
    layer.front()->finish_gradients(stream);
  }
}

}  // namespace moe
