#include "moe/stack/stack_binding.h"

#include <algorithm>

#include "moe/base/check.h"

namespace moe {
namespace {

bool of_a_pass(const Task& task) {
  return !sends_gradients(task.kind) && task.kind != TaskKind::send && task.kind != TaskKind::recv &&
         task.kind != TaskKind::optimizer;
}

// The tasks of one layer's passes of one micro-batch, as a plan of that layer alone.
Plan plan_of_cell(const Plan& whole, int layer, int micro_batch) {
  Structure structure;
  structure.flow = whole.structure->flow;
  for (const Task& task : whole.tasks()) {
    if (task.layer != layer || task.micro_batch != micro_batch || !of_a_pass(task)) continue;
    structure.tasks.push_back(task);
    structure.tasks.back().id = static_cast<int>(structure.tasks.size()) - 1;
    structure.tasks.back().after.clear();
  }
  Plan plan;
  plan.schedule = whole.schedule;
  plan.degree_forward = whole.degree_forward;
  plan.degree_backward = whole.degree_backward;
  plan.shape = stage_case(whole.shape);
  plan.groups = whole.groups;
  plan.rows = whole.rows;
  plan.structure = std::make_shared<const Structure>(std::move(structure));
  return plan;
}

}  // namespace

void require_stack_runs(const Plan& plan) {
  for (const Gradient& gradient : plan.gradients)
    require<Unsupported>(gradient.layer >= 0 && gradient.layer < plan.layers,
                         "a stack of layers has no gradients of a model's ends, found a plan with {} bytes of them",
                         gradient.bytes);
  const int layers = plan.layers, micro_batches = plan.micro_batches;
  for (int layer = 0; layer < layers; ++layer)
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const Plan cell = plan_of_cell(plan, layer, micro_batch);
      for (const Phase phase : {Phase::forward, Phase::backward}) cuts_of(cell, phase);
    }
}

StackBinding::StackBinding(LayerStack& stack, const Plan& plan, Device& device) : stack_(stack), plan_(plan) {
  const StackShape& shape = stack.shape();
  require<WrongResult>(plan.shape == shape.shape, "the plan is for {} and another parallel shape or rounding",
                       describe(plan.shape.layer));
  require_equal(plan.layers, shape.layers, "the plan's layers");
  require_equal(plan.micro_batches, shape.micro_batches, "the plan's micro-batches");
  add_cells();
  set_into();
  places_.resize(plan_.tasks().size());
  for (const Task& task : plan_.tasks())
    if (plan_.structure->lanes[static_cast<size_t>(task.lane)].stage == stack.stage()) add_place(task, device);
  for (const Phase phase : {Phase::forward, Phase::backward})
    if (stack.links().to_next(phase)) leaving_[static_cast<size_t>(phase)] = device.make_stream("leaving the stage");
}

void StackBinding::add_cells() {
  for (int layer = stack_.first_layer(); layer < stack_.last_layer(); ++layer) {
    auto& cells = cells_.emplace_back();
    for (int micro_batch = 0; micro_batch < plan_.micro_batches; ++micro_batch) {
      Cell& cell = cells.emplace_back();
      cell.plan = plan_of_cell(plan_, layer, micro_batch);
      cell.binding = std::make_unique<LayerBinding>(stack_.cell(layer, micro_batch), cell.plan);
    }
  }
}

// Gradients begin with the micro-batch whose task comes first.
void StackBinding::set_into() {
  for (int layer = stack_.first_layer(); layer < stack_.last_layer(); ++layer)
    for (const auto& [kind, part] : {std::pair{TaskKind::attention, &GradientsInto::attention},
                                     {TaskKind::gate, &GradientsInto::gate},
                                     {TaskKind::expert, &GradientsInto::experts}}) {
      const auto first = std::ranges::find_if(plan_.tasks(), [&](const Task& task) {
        return task.layer == layer && task.phase == Phase::backward && task.kind == kind;
      });
      for (int micro_batch = 0; micro_batch < plan_.micro_batches; ++micro_batch)
        stack_.cell(layer, micro_batch).state().into.*part =
            first->micro_batch == micro_batch ? Into::overwrite : Into::add;
    }
}

void StackBinding::add_place(const Task& task, Device& device) {
  if (first_task_ < 0) first_task_ = task.id;
  sums_experts_ |= task.kind == TaskKind::expert_gradient;
  Place& place = places_[static_cast<size_t>(task.id)];
  if (of_a_pass(task)) {
    place.cell = &cells_[static_cast<size_t>(task.layer - stack_.first_layer())][static_cast<size_t>(task.micro_batch)];
    const std::vector<Task>& own = place.cell->plan.tasks();
    const auto same = [&](const Task& t) {
      return t.kind == task.kind && t.phase == task.phase && t.chunk == task.chunk && t.chunks == task.chunks;
    };
    const auto found = std::ranges::find_if(own, same);
    require<WrongResult>(found != own.end() && std::ranges::find_if(found + 1, own.end(), same) == own.end(),
                         "{}: not once in its layer's pass", task.name());
    place.task = found->id;
    return;
  }
  place.name = task.name();
  if (sends_gradients(task.kind)) place.data = summed(task);
  if (task.kind == TaskKind::send || task.kind == TaskKind::recv) place.data = passed_on(task);
  if (task.kind == TaskKind::send) place.ready = device.make_event();
}

TensorView StackBinding::summed(const Task& task) const {
  const GradientSlice& slice = plan_.slices[static_cast<size_t>(task.slice)];
  const bool experts = task.kind == TaskKind::expert_gradient;
  const TensorView all = experts ? stack_.expert_gradients() : stack_.dense_gradients();
  // The stage's gradients lie in the order in which they are made, as the plan counts their bytes.
  const Gradient& from = plan_.gradients[static_cast<size_t>(slice.gradient)];
  require_equal(from.bytes * (stack_.last_layer() - stack_.first_layer()), all.bytes(), "the plan's gradient bytes");
  const int64_t width = bytes_of(all.dtype()), before = from.bytes * (stack_.last_layer() - 1 - from.layer);
  // Slices may end inside an element; cut alike on both sides, they still cover each element once.
  const int64_t begin = (before + slice.begin) / width, end = (before + slice.end) / width;
  return all.part(begin, {end - begin});
}

TensorView StackBinding::passed_on(const Task& task) const {
  const bool sent = task.kind == TaskKind::send, forward = task.phase == Phase::forward;
  const MoeLayer& cell =
      stack_.cell(sent == forward ? stack_.last_layer() - 1 : stack_.first_layer(), task.micro_batch);
  if (forward) return sent ? cell.output() : cell.input();
  return sent ? cell.input_gradient() : cell.output_gradient();
}

// What the pass before sent has left once it is received; a rank that waits for no other may be here before.
void StackBinding::begin_pass() {
  for (const auto& leaving : leaving_)
    if (leaving) leaving->synchronize();
  stack_.set_experts_summed(sums_experts_);
}

void StackBinding::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.id == first_task_) begin_pass();
  const Place& place = places_[static_cast<size_t>(task.id)];
  if (place.cell != nullptr) return place.cell->binding->issue(own_task(place), stream, pace);
  const TensorView& data = place.data;
  if (sends_gradients(task.kind))
    stack_.comms().of(task.group).allreduce(data.data(), data.elements(), data.dtype(), {stream, pace, place.name});
  else if (task.kind == TaskKind::recv)
    stack_.links()
        .from_before(task.phase)
        ->receive(data.data(), data.bytes(), task.phase == Phase::forward ? 0 : 1, {stream, {}, place.name});
}

void StackBinding::settle(const Task& task, Stream& stream) {
  const Place& place = places_[static_cast<size_t>(task.id)];
  if (place.cell != nullptr) return place.cell->binding->settle(own_task(place), stream);
  if (task.kind != TaskKind::send) return;
  Stream& leaving = *leaving_[static_cast<size_t>(task.phase)];
  stream.record(*place.ready);
  leaving.wait(*place.ready);
  stack_.links()
      .to_next(task.phase)
      ->send(place.data.data(), place.data.bytes(), task.phase == Phase::forward ? 1 : 0, {leaving, {}, place.name});
}

}  // namespace moe
