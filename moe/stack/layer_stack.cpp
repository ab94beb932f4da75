#include "moe/stack/layer_stack.h"

#include <algorithm>
#include <utility>

#include "moe/base/check.h"
#include "moe/layer/gradient_sums.h"
#include "moe/plan/pipeline.h"
#include "moe/shape/volumes.h"

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

StackShape stack_shape(const Plan& plan) {
  StackShape shape{plan.shape, plan.structure->flow, plan.layers, plan.micro_batches, plan.dense, plan.virtual_stages};
  shape.slots = memory_slots(plan);
  shape.whole = plan.whole;
  if (plan.vocabulary == 0) return shape;
  shape.head_weights = head_weights(plan.shape, plan.vocabulary, plan.step.tied).dense;
  shape.embedding_weights = embedding_weights(plan.shape, plan.vocabulary).dense;
  return shape;
}

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
      cases_(stage_case(shape.shape), shape.dense, shape.whole),
      stage_(index_in_group(shape.shape.parallel, GroupKind::pp, rank)),
      layers_(layers_of_stage(shape.split(), stage_)),
      links_(world, shape.split()),
      comms_(comms_of_stage(world, stage_case(shape.shape))) {
  const LayerCase& own = cases_.moe();
  MemorySpace& memory = device.math().memory();
  const auto all_of = [&](bool experts) {
    const Part last = part_of(begins() ? kEmbeddingLayer : layers_.front(), experts);  // the first layers' come last
    return last.first + last.elements;
  };
  dense_gradients_ = Tensor({all_of(false)}, own.layer.dtype, memory);
  if (all_of(true) > 0) expert_gradients_ = Tensor({all_of(true)}, own.layer.dtype, memory);
  for (const int layer : layers_) add_layer(layer, rank, seed, device);
  if (own.parallel.offload == Offload::experts && all_of(true) > 0) make_window(all_of(true), memory);
  for (const int layer : layers_)
    for (Parameter& p : weights(layer, SummedOver::stage)) replicated_.push_back(std::move(p));
  if (own.parallel.ranks() > 1 && !replicated_.empty())
    replicated_sums_ = Tensor({elements_of(replicated_)}, accumulation_type(own.layer.dtype), memory);
  if (own.parallel.zero == 0) return;
  if (comms_.communicator(GroupKind::dp).size() > 1)
    dense_gathered_ = Tensor({max_weights(SummedOver::dp)}, own.layer.dtype, memory);
  if (comms_.communicator(GroupKind::edp).size() > 1 && max_weights(SummedOver::edp) > 0)
    experts_gathered_ = Tensor({max_weights(SummedOver::edp)}, own.layer.dtype, memory);
}

void LayerStack::add_layer(int layer, int rank, const LayerSeed& seed, LayerDevice& device) {
  const auto [first, last] = layers_of_chunk(shape_.split(), chunk_of_layer(shape_.split(), layer));
  RankShape place = rank_shape(cases_.at(layer), rank % cases_.moe().parallel.ranks(), shape_.flow);
  SharedLayerTensors shared_tensors;
  shared_tensors.last = layer + 1 == last;
  const auto lend = [&](std::string_view name, TensorView all, bool experts) {
    const Part part = part_of(layer, experts);
    if (part.elements > 0) shared_tensors.weights->lend(name, all.part(part.first, {part.elements}));
  };
  lend(kDenseGradients, dense_gradients_, false);
  lend(kDenseGradientsBefore, dense_gradients_, false);
  lend(kExpertGradients, expert_gradients_, true);
  auto& cells = cells_.emplace_back();
  for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
    LayerSeed of_cell = seed;
    of_cell.layer += static_cast<uint64_t>(layer);
    of_cell.micro_batch = static_cast<uint64_t>(micro_batch);
    place.shape.part = micro_batch % shape_.split().parts;
    shared_tensors.parts_before.clear();
    for (int part = 0; part < place.shape.part; ++part)
      shared_tensors.parts_before.push_back(
          cell(layer, micro_batch - place.shape.part + part).state().parts.attention.get());
    shared_tensors.memory = memory_of(layer, micro_batch);
    shared_tensors.before = layer > first ? &cell(layer - 1, micro_batch).state().buffers : nullptr;
    cells.push_back(std::make_unique<MoeLayer>(place, of_cell, comms_, device, shared_tensors));
  }
}

void LayerStack::make_window(int64_t expert_elements, MemorySpace& memory) {
  const LayerCase& own = cases_.moe();
  require<Unsupported>(memory.kind() == DeviceKind::cpu,
                       "offload: found {} on {}, expected the CPU: GPUs do not run offloading yet",
                       name_of(own.parallel.offload), name_of(memory.kind()));
  const int64_t moe = std::ranges::count_if(layers_, [&](int layer) { return !cases_.is_dense(layer); });
  window_ = Tensor({std::min<int64_t>(kWindowLayers, moe), expert_gradient_bytes(own) / bytes_of(own.layer.dtype)},
                   own.layer.dtype, memory);
  host_gradients_ = Tensor({expert_elements}, own.layer.dtype, cpu_memory());
}

TensorView LayerStack::window(int place, int64_t elements) const {
  const TensorView all = window_;  // of the rank with the most
  require<WrongResult>(elements <= all.size(1), "elements of a layer in the window: found {}, expected at most {}",
                       elements, all.size(1));
  return all.part(place * all.size(1), {elements});
}

LayerMemory LayerStack::memory_of(int layer, int micro_batch) {
  LayerMemory memory;
  if (shape_.slots.none()) return memory;
  const auto& slots = shape_.slots.pass_slots(layer, micro_batch);
  for (size_t l = 0; l < slots.size(); ++l) {
    if (slots[l] < 0) continue;
    std::shared_ptr<TensorStore>& slot = slots_[slots[l]];
    if (slot == nullptr) slot = std::make_shared<TensorStore>();
    memory.share(static_cast<Lifetime>(l), slot);
  }
  return memory;
}

LayerStack::Part LayerStack::part_of(int layer, bool experts) const {
  const auto elements = [&](int of) {
    if (of < 0 || of == shape_.layers) return experts ? 0 : of < 0 ? shape_.embedding_weights : shape_.head_weights;
    const LayerCase& c = cases_.at(of);
    return (experts ? expert_gradient_bytes(c) : gradient_bytes(c)) / bytes_of(c.layer.dtype);
  };
  Part part{0, elements(layer)};
  if (ends() && layer < shape_.layers) part.first += elements(shape_.layers);
  for (const int other : layers_)
    if (other > layer) part.first += elements(other);
  return part;
}

int64_t LayerStack::max_weights(SummedOver over) const {
  int64_t most = 0;
  for (const int layer : layers_) most = std::max(most, elements_of(weights(layer, over)));
  return most;
}

std::vector<Parameter> LayerStack::weights(int layer, SummedOver over) const {
  std::vector<Parameter> weights = cell(layer, 0).parameters();
  std::erase_if(weights, [&](const Parameter& p) { return p.summed_over != over; });
  return weights;
}

void LayerStack::sum_replicated(CommCall call) {
  Math& math = front().state().math();
  const auto each = [this, &math](auto move) {
    return [this, &math, move](void* native) {
      math.use(native);
      int64_t at = 0;
      for (const Parameter& p : replicated_) {
        move(math, p, replicated_sums_.view().part(at, {p.gradient.elements()}));
        at += p.gradient.elements();
      }
    };
  };
  call.stream.launch(each([](Math& m, const Parameter& p, TensorView sum) { copy(m, p.gradient.flat(), sum); }));
  const TensorView all = replicated_sums_;
  comms_.communicator(GroupKind::stage).allreduce(all.data(), all.elements(), all.dtype(), call);
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
  const std::vector<Parameter> own = weights(layer, over);
  if (own.empty()) return;  // a dense layer has no experts
  const TensorView most = over == SummedOver::edp ? experts_gathered_ : dense_gathered_;
  const TensorView gathered = most.data() == nullptr ? most : most.part(0, {elements_of(own)});
  moe::gather_weights(own, gathered, comm, cell(layer, 0).state().math(), call);
}

// One gather per element type: norms have the layer's, a gate the type of sums.
void LayerStack::gather_replicated(Communicator& dp, CommCall call) {
  MoeLayer& any = front();
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    std::vector<Parameter> of_type = replicated_;
    std::erase_if(of_type, [&](const Parameter& p) { return p.value.dtype() != dtype; });
    if (of_type.empty()) continue;
    const auto scratch = std::make_shared<Tensor>(Tensor({elements_of(of_type)}, dtype, any.memory()));
    moe::gather_weights(of_type, *scratch, dp, any.state().math(), call);
    call.pace = {};                           // the first gather keeps the pace of both
    call.stream.launch([scratch](void*) {});  // keeps `scratch` until the gather is done
  }
}

RankCells LayerStack::cells() const {
  std::vector<std::vector<MoeLayer*>> all;
  for (const auto& layer : cells_) {
    auto& of_layer = all.emplace_back();
    for (const auto& cell : layer) of_layer.push_back(cell.get());
  }
  return {cases_, layers_, std::move(all)};
}

StageLinks::StageLinks(Communicator& world, const StageSplit& split) {
  const int of_stage = world.size() / split.stages, stage = world.rank() / of_stage;
  const int shared_tensors = split.virtual_stages > 1 ? split.stages : split.stages - 1;
  for (int before = 0; before < shared_tensors; ++before) {
    const bool sends = stage == before, receives = stage == (before + 1) % split.stages;
    const int colour = sends || receives ? world.rank() % of_stage : -1;
    auto forward = world.split(colour, sends ? 0 : 1), backward = world.split(colour, sends ? 0 : 1);
    if (sends) links_[0].out = std::move(forward), links_[1].in = std::move(backward);
    if (receives) links_[0].in = std::move(forward), links_[1].out = std::move(backward);
  }
}

}  // namespace moe
