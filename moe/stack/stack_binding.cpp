#include "moe/stack/stack_binding.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/layer/binding.h"
#include "moe/layer/gradient_sums.h"

namespace moe {
namespace {

bool belongs_to_pass(const Task& task) { return is_of_layer(task.kind); }

}  // namespace

CellPlans::CellPlans(const Plan& whole) : cell_task_id(whole.tasks().size(), -1) {
  const auto layers = static_cast<size_t>(whole.layers), micro_batches = static_cast<size_t>(whole.micro_batches);
  std::vector<Structure> structures(layers * micro_batches);
  const LayerCases cases(stage_case(whole.shape), whole.dense, whole.whole);
  for (const Task& task : whole.tasks()) {
    if (!belongs_to_pass(task)) continue;
    std::vector<Task>& tasks = structures[task.layer * micro_batches + task.micro_batch].tasks;
    cell_task_id[task.id] = static_cast<int>(tasks.size());
    tasks.push_back(task);
    tasks.back().id = cell_task_id[task.id];
    tasks.back().after.clear();
  }
  for (size_t cell = 0; cell < structures.size(); ++cell) {
    if (cell % micro_batches == 0) plans.emplace_back();
    structures[cell].flow = whole.structure->flow;
    Plan& plan = plans.back().emplace_back();
    plan.schedule = whole.schedule;
    plan.degree_forward = whole.degree_forward;
    plan.degree_backward = whole.degree_backward;
    plan.shape =
        part_case(cases.at(static_cast<int>(plans.size()) - 1), whole.part_of(static_cast<int>(cell % micro_batches)));
    plan.groups = whole.groups;
    plan.rows = is_dense(plan.shape) ? 0 : whole.rows;
    plan.structure = std::make_shared<const Structure>(std::move(structures[cell]));
  }
}

void require_stack_runs(const Plan& plan) {
  for (const Gradient& gradient : plan.gradients)
    require<Unsupported>(plan.vocabulary > 0 || (gradient.layer >= 0 && gradient.layer < plan.layers),
                         "a stack of layers has no embedding or head, found a plan with {} bytes of their gradients",
                         gradient.bytes);
  for (const auto& layer : CellPlans(plan).plans)
    for (const Plan& cell : layer)
      for (const Phase phase : {Phase::forward, Phase::backward})
        if (!is_dense(cell.shape)) chunk_counts_of(cell, phase);
}

StackBinding::StackBinding(LayerStack& stack, const Plan& plan, Device& device, ModelTasks* model)
    : stack_(stack), model_(model), plan_(plan), cell_plans_(plan) {
  const StackShape& shape = stack.shape();
  layer::check_case(plan.shape, shape.shape, "stack");
  require_equal(plan.layers, shape.layers, "the plan's layers");
  require<WrongResult>(plan.dense == shape.dense, "the plan and the stack have different dense layers");
  require<WrongResult>(plan.whole == shape.whole, "the plan and the stack have different windows by layer");
  require_equal(plan.micro_batches, shape.micro_batches, "the plan's micro-batches");
  require_equal(plan.virtual_stages, shape.virtual_stages, "the plan's virtual stages");
  require<WrongResult>(shape.slots.none() || shape.slots == memory_slots(plan),
                       "the plan and the stack assign memory slots differently");
  require<WrongResult>(plan.vocabulary == 0 || model != nullptr,
                       "the plan has an embedding and a head, the stack has none");
  require<WrongResult>(plan.step.planned, "the plan has no step, which sums the gradients");
  add_cells();
  set_into();
  places_.resize(plan_.tasks().size());
  for (const Task& task : plan_.tasks())
    if (plan_.structure->lanes[task.lane].stage == stack.stage()) add_place(task, device);
  for (const Phase phase : {Phase::forward, Phase::backward})
    if (stack.links().send_link(phase)) leaving_[phase] = device.make_stream("leaving the stage");
}

void StackBinding::add_cells() {
  for (const int layer : stack_.layers()) {
    auto& cells = cells_.emplace_back();
    for (int micro_batch = 0; micro_batch < plan_.micro_batches; ++micro_batch) {
      MoeLayer& cell = stack_.cell(layer, micro_batch);
      const Plan& own = cell_plans_.at(layer, micro_batch);
      if (cell.shape().is_dense())
        cells.push_back(std::make_unique<DenseBinding>(cell, own));
      else
        cells.push_back(std::make_unique<LayerBinding>(cell, own));
    }
  }
}

// The micro-batch whose task comes first overwrites the gradients.
void StackBinding::set_into() {
  for (const int layer : stack_.layers())
    for (const auto& [kind, part] : {std::pair{TaskKind::attention, &GradientsInto::attention},
                                     {TaskKind::attention, &GradientsInto::attention_norm},
                                     {TaskKind::attention_dx, &GradientsInto::attention_norm},
                                     {TaskKind::attention_dw, &GradientsInto::attention},
                                     {TaskKind::keys_values, &GradientsInto::keys_values},
                                     {TaskKind::keys_values, &GradientsInto::attention_norm},
                                     {TaskKind::gate, &GradientsInto::gate},
                                     {TaskKind::expert, &GradientsInto::experts},
                                     {TaskKind::expert_dw, &GradientsInto::experts},
                                     {TaskKind::shared, &GradientsInto::shared},
                                     {TaskKind::ffn, &GradientsInto::shared},
                                     {TaskKind::i_order, &GradientsInto::output}}) {
      const auto first = std::ranges::find_if(plan_.tasks(), [&](const Task& task) {
        return task.layer == layer && task.phase == Phase::backward && task.kind == kind;
      });
      for (int micro_batch = 0; micro_batch < plan_.micro_batches && first != plan_.tasks().end(); ++micro_batch)
        stack_.cell(layer, micro_batch).state().into.*part =
            first->micro_batch == micro_batch ? Into::overwrite : Into::add;
    }
}

void StackBinding::add_place(const Task& task, Device& device) {
  if (first_task_ < 0) first_task_ = task.id;
  Place& place = places_[task.id];
  if (belongs_to_pass(task)) {
    place.cell = cells_[stack_.place_of(task.layer)][task.micro_batch].get();
    const Plan& own = cell_plans_.at(task.layer, task.micro_batch);
    place.task = &own.tasks()[cell_plans_.cell_task_id[task.id]];
    if (offloads()) add_window(task, place);
    return;
  }
  place.name = task.name();
  sums_dense_ |= task.kind == TaskKind::gradient;
  sums_experts_ |= task.kind == TaskKind::expert_gradient;
  sums_alike_ |= task.kind == TaskKind::stage_gradient;
  if (sends_gradients(task.kind) && task.kind != TaskKind::stage_gradient) place.data = summed(task);
  if (task.kind == TaskKind::send || task.kind == TaskKind::recv) place.data = boundary_tensor(task);
  const bool completes = task.kind == TaskKind::store && plan_.step.clips && completes_experts(task.layer);
  if (task.kind == TaskKind::send || completes) place.ready = device.make_event();
  if (offloads()) add_window(task, place);
}

// Tasks come in issue order, so a task that computes experts reads the place to which its layer was fetched last.
void StackBinding::add_window(const Task& task, Place& place) {
  if (task.kind == TaskKind::fetch)
    fetched_.at(task.chunk) = task.layer;
  else if (!is_expert(task.kind))
    return;
  const auto found = std::ranges::find(fetched_, task.layer);
  require<WrongResult>(found != fetched_.end(), "{}: its weights are not in the window", task.name());
  const TensorView weights = stack_.cell(task.layer, 0).state().parts.expert->weights();
  require<Unsupported>(weights.data() != nullptr,
                       "offload: found experts of ffn {}, expected experts that can read a copy of their weights",
                       name_of(plan_.shape.layer.ffn));
  place.window = stack_.window(static_cast<int>(found - fetched_.begin()), weights.elements());
}

TensorView StackBinding::summed(const Task& task) const {
  const GradientSlice& slice = plan_.slices[task.slice];
  const bool experts = task.kind == TaskKind::expert_gradient;
  const TensorView all = experts ? stack_.expert_gradients() : stack_.dense_gradients();
  // The stage's gradients lie in the order in which they are made, which is how the plan counts their bytes.
  const Gradient& from = plan_.gradients[slice.gradient];
  const LayerStack::Part part = stack_.part_of(from.layer, experts);
  const int64_t width = bytes_of(all.dtype()), before = part.first * width;
  require_equal(from.bytes, part.elements * width, "the plan's gradient bytes");
  // Slices may end inside an element; both sides are cut alike, so they still cover each element once.
  const int64_t begin = (before + slice.begin) / width, end = (before + slice.end) / width;
  return all.part(begin, {end - begin});
}

TensorView StackBinding::boundary_tensor(const Task& task) const {
  const bool sent = task.kind == TaskKind::send, forward = task.phase == Phase::forward;
  const MoeLayer& cell = stack_.cell(task.layer, task.micro_batch);
  if (forward) return sent ? cell.output() : cell.input();
  return sent ? cell.input_gradient() : cell.output_gradient();
}

// Waits until the previous pass's sends are done, because this pass overwrites their data; a rank that waits for no
// other rank may get here earlier.
void StackBinding::begin_pass() {
  for (const auto& leaving : leaving_)
    if (leaving) leaving->synchronize();
}

void StackBinding::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.id == first_task_) begin_pass();
  const Place& place = places_[task.id];
  if (place.window.data() != nullptr && task.kind != TaskKind::fetch) {
    Expert* expert = stack_.cell(task.layer, task.micro_batch).state().parts.expert.get();
    const TensorView weights = stack_.reads_host() ? expert->weights() : place.window;
    stream.launch([=](void*) { expert->read_weights_from(weights); });
  }
  if (place.cell != nullptr) return place.cell->issue(*place.task, stream, pace);
  const TensorView& data = place.data;
  if (sends_gradients(task.kind) && data.data() != nullptr)
    stack_.comms()
        .communicator(task.group)
        .allreduce(data.data(), data.elements(), data.dtype(), {stream, pace, place.name});
  else if (task.kind == TaskKind::fetch)
    fetch(task, stream);
  else if (task.kind == TaskKind::store)
    store(task, stream);
  else if (task.phase == Phase::step)
    issue_step(task, {stream, pace, place.name});
  else if (task.kind == TaskKind::recv)
    stack_.links()
        .receive_link(task.phase)
        ->receive(data.data(), data.bytes(), task.phase == Phase::forward ? 0 : 1, {stream, {}, place.name});
  else if (task.kind != TaskKind::send)
    model_->issue(task, {stream, pace, place.name});
}

// Copies a layer's experts from the host's memory to the window.
void StackBinding::fetch(const Task& task, Stream& stream) {
  const TensorView from = stack_.cell(task.layer, 0).state().parts.expert->weights();
  stream.copy({.to = places_[task.id].window.data(), .from = from.data(), .bytes = from.bytes()});
}

// Copies a layer's experts' gradients, once they are whole, to the host's memory.
void StackBinding::store(const Task& task, Stream& stream) {
  sum_experts(task.layer, stream);
  stream.launch([this, layer = task.layer](void* native) {
    stack_.cell(layer, 0).state().math().use(native);
    stack_.count_once(layer);
  });
  if (places_[task.id].ready) stream.record(*places_[task.id].ready);
  const TensorView from = experts_of(task.layer);
  void* to = stack_.host_gradients().at(stack_.part_of(task.layer, true).first);
  stream.copy({.to = to, .from = from.data(), .bytes = from.bytes()});
}

// Returns whether the store itself completes the layer's gradients, by summing or scaling them first.
bool StackBinding::completes_experts(int layer) const {
  if (!sums_experts_ && stack_.comms().communicator(GroupKind::edp).size() > 1) return true;
  return std::ranges::any_of(stack_.weights(layer, SummedOver::edp), [](const Parameter& p) { return p.copies > 1; });
}

// A proxy may have several ranks in a group that has one rank, and so no task, in the real cluster. Gradients that a
// step reads are then summed right before it, in no task's time: its layer's, or all whose squares are counted.
void StackBinding::sum_remaining_gradients(const Task& task, Stream& stream) {
  if (task.kind == TaskKind::optimizer && !plan_.step.clips) return sum_of_layer(task.layer, stream);
  if (task.kind != TaskKind::squares) return;
  const std::vector<int>& layers = stack_.layers();
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) sum_of_layer(*layer, stream);
  if (model_ == nullptr) return;
  if (stack_.ends()) sum_of_layer(plan_.layers, stream);
  if (stack_.begins()) sum_of_layer(kEmbeddingLayer, stream);
}

void StackBinding::sum_of_layer(int layer, Stream& stream) {
  const CommCall call{stream, {}, "gradients that no task sums"};
  const auto comm = [&](GroupKind group) -> Communicator& { return stack_.comms().communicator(group); };
  Communicator& stage = comm(GroupKind::stage);
  if (const LayerStack::Part dense = stack_.part_of(layer, false);
      !sums_dense_ && comm(GroupKind::dp).size() > 1 && dense.elements > 0) {
    const TensorView own = stack_.dense_gradients().part(dense.first, {dense.elements});
    comm(GroupKind::dp).allreduce(own.data(), own.elements(), own.dtype(), call);
  }
  Task sum;
  sum.kind = TaskKind::stage_gradient;
  sum.phase = Phase::step;
  sum.layer = layer;
  if (plan_.is_end(sum.layer)) return sums_alike_ || stage.size() == 1 ? void() : model_->issue(sum, call);
  if (!sums_alike_ && stage.size() > 1)
    for (const Parameter& p : stack_.weights(layer, SummedOver::stage))
      sum_gradient(p, stage, true, stack_.cell(layer, 0).state().math(), call);
  if (!offloads()) sum_experts(layer, stream);  // else they are summed before they are stored
}

void StackBinding::sum_experts(int layer, Stream& stream) {
  Communicator& edp = stack_.comms().communicator(GroupKind::edp);
  if (sums_experts_ || edp.size() == 1 || plan_.dense.has(layer)) return;
  const TensorView own = experts_of(layer);
  edp.allreduce(own.data(), own.elements(), own.dtype(), {stream, {}, "experts' gradients that no task sums"});
}

TensorView StackBinding::experts_of(int layer) const {
  const LayerStack::Part part = stack_.part_of(layer, true);
  return stack_.expert_gradients().part(part.first, {part.elements});
}

void StackBinding::issue_step(const Task& task, CommCall call) {
  if (offloads() && task.kind == TaskKind::squares)
    for (const Task& store : plan_.tasks())
      if (store.kind == TaskKind::store && places_[store.id].ready) call.stream.wait(*places_[store.id].ready);
  sum_remaining_gradients(task, call.stream);
  const auto dp = [&]() -> Communicator& { return stack_.comms().communicator(GroupKind::dp); };
  if (plan_.is_end(task.layer)) return model_->issue(task, call);
  switch (task.kind) {
    case TaskKind::stage_gradient:
      return stack_.sum_replicated(call);
    case TaskKind::weights:
      return stack_.gather_weights(task.layer, SummedOver::dp, dp(), call);
    case TaskKind::expert_weights:
      return stack_.gather_weights(task.layer, SummedOver::edp, stack_.comms().communicator(GroupKind::edp), call);
    case TaskKind::stage_weights:
      return stack_.gather_replicated(dp(), call);
    default:
      break;
  }
  if (model_ != nullptr) return model_->issue(task, call);
  if (task.kind == TaskKind::optimizer && !offloads())
    call.stream.launch([this, layer = task.layer](void* native) {
      stack_.cell(layer, 0).state().math().use(native);
      stack_.count_once(layer);
    });
}

void StackBinding::finish_task(const Task& task, Stream& stream) {
  const Place& place = places_[task.id];
  if (place.cell != nullptr) return place.cell->finish_task(*place.task, stream);
  if (task.kind != TaskKind::send) return;
  Stream& leaving = *leaving_[task.phase];
  stream.record(*place.ready);
  leaving.wait(*place.ready);
  stack_.links()
      .send_link(task.phase)
      ->send(place.data.data(), place.data.bytes(), task.phase == Phase::forward ? 1 : 0, {leaving, {}, place.name});
}

}  // namespace moe
