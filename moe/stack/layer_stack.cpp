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

void copy(Math& math, TensorView from, TensorView to) {
  from.dtype() == to.dtype() ? math.assign(from, to) : math.convert(from, to);
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
  if (own.parallel.ranks() > 1) alike_sums_ = Tensor({elements_of(alike())}, sums_type(own.layer.dtype), memory);
  if (own.parallel.zero == 0) return;
  if (comms_.of(GroupKind::dp).size() > 1)
    dense_gathered_ = Tensor({elements_of(weights(first_, SummedOver::dp))}, own.layer.dtype, memory);
  if (comms_.of(GroupKind::edp).size() > 1)
    experts_gathered_ = Tensor({elements_of(weights(first_, SummedOver::edp))}, own.layer.dtype, memory);
}

std::vector<Parameter> LayerStack::weights(int layer, SummedOver over) const {
  std::vector<Parameter> weights = cell(layer, 0).parameters();
  std::erase_if(weights, [&](const Parameter& p) { return p.summed_over != over; });
  return weights;
}

std::vector<Parameter> LayerStack::alike() const {
  std::vector<Parameter> all;
  for (int layer = first_; layer < last_layer(); ++layer)
    for (Parameter& p : weights(layer, SummedOver::stage)) all.push_back(std::move(p));
  return all;
}

void LayerStack::sum_alike(CommCall call) {
  Math& math = cell(first_, 0).state().math();
  const auto each = [this, &math](auto move) {
    return [this, &math, move](void* native) {
      math.use(native);
      int64_t at = 0;
      for (const Parameter& p : alike()) {
        move(math, p, alike_sums_.view().part(at, {p.gradient.elements()}));
        at += p.gradient.elements();
      }
    };
  };
  call.stream.launch(each([](Math& m, const Parameter& p, TensorView sum) { copy(m, p.gradient.flat(), sum); }));
  const TensorView all = alike_sums_;
  comms_.of(GroupKind::stage).allreduce(all.data(), all.elements(), all.dtype(), call);
  call.stream.launch(each([](Math& m, const Parameter& p, TensorView sum) {
    if (p.copies > 1) m.scale(sum, 1.0 / p.copies);
    copy(m, sum, p.gradient.flat());
  }));
}

void LayerStack::count_once(int layer) {
  for (const Parameter& p : weights(layer, SummedOver::edp))
    if (p.copies > 1) cell(layer, 0).state().math().scale(p.gradient, 1.0 / p.copies);
}

void LayerStack::gather_weights(int layer, SummedOver over, Communicator& comm, CommCall call) {
  const Tensor& gathered = over == SummedOver::edp ? experts_gathered_ : dense_gathered_;
  moe::gather_weights(weights(layer, over), gathered, comm, cell(layer, 0).state().math(), call);
}

// One gather a type of elements: norms are of the layer's, a gate's of the type of sums.
void LayerStack::gather_alike(Communicator& dp, CommCall call) {
  MoeLayer& any = cell(first_, 0);
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    std::vector<Parameter> of_type = alike();
    std::erase_if(of_type, [&](const Parameter& p) { return p.value.dtype() != dtype; });
    if (of_type.empty()) continue;
    const auto scratch = std::make_shared<Tensor>(Tensor({elements_of(of_type)}, dtype, any.memory()));
    moe::gather_weights(of_type, *scratch, dp, any.state().math(), call);
    call.pace = {};                           // the first one keeps that of both
    call.stream.launch([scratch](void*) {});  // which lives until then
  }
}

RankCells LayerStack::cells() const {
  std::vector<std::vector<MoeLayer*>> all;
  for (const auto& layer : cells_) {
    auto& of_layer = all.emplace_back();
    for (const auto& cell : layer) of_layer.push_back(cell.get());
  }
  return {first_, std::move(all)};
}

}  // namespace moe
