#include "moe/schedule/detail/iteration_builder.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "moe/shape/volumes.h"

namespace moe::schedule {

void IterationBuilder::transfer(const Pass& from) {
  pass_ = &from;
  if (lane_of(GroupKind::pp) >= 0) {
    const Chain& output = outputs_[{from.micro_batch, from.layer}][from.phase];
    const int sent = push(TaskKind::send, after_last(TaskKind::send, output.after));
    last().reads.push_back(output.data);
    sent_[{from.phase, from.micro_batch, from.layer}] = sent;
  }
  pass_ = nullptr;
}

// The embedding has the layer number before the first layer, the head the one after the last. If the vocabulary is
// sharded over MP, each rank computes its shard's part for the tokens of all MP ranks.
int IterationBuilder::embed(const Pass& pass) {
  Pass before = pass;
  before.layer = kEmbeddingLayer;
  pass_ = &before;
  const bool forward = pass.phase == Phase::forward;
  int id = 0;
  if (forward) {
    const Access input{Buffer::input, Phase::forward, 0, 0, 1, pass.micro_batch};
    id = push(TaskKind::embed, {});
    last().writes.push_back(spans(GroupKind::mp) ? whole_of(Buffer::end_partial) : input);
    outputs_[{pass.micro_batch, before.layer}][pass.phase] = sum_of_end(id, input);
  } else {
    const Chain gradient = rows_of_end(outputs_.at({pass.micro_batch, 0})[pass.phase]);
    id = push(TaskKind::embed, gradient.after);
    last().reads.push_back(gradient.data);
    last().writes.push_back(whole_of(Buffer::gradient));
    outputs_[{pass.micro_batch, before.layer}][pass.phase] = {{id}, last().writes.front()};
  }
  pass_ = nullptr;
  return id;
}

int IterationBuilder::head(const Pass& pass) {
  Pass behind = pass;
  ++behind.layer;
  pass_ = &behind;
  auto& ours = outputs_[{pass.micro_batch, behind.layer}];
  const Chain& output = outputs_.at({pass.micro_batch, pass.layer})[Phase::forward];
  Chain& logits = ours[Phase::forward];
  int id = 0;
  if (pass.phase == Phase::forward) {
    Chain& rows = head_inputs_[pass.micro_batch] = rows_of_end(output);
    id = push(TaskKind::head, rows.after);
    last().reads.push_back(rows.data);
    last().writes.push_back(whole_of(Buffer::logits));
    logits = {{id}, last().writes.front()};
    if (spans(GroupKind::mp)) {
      logits.after = {push(TaskKind::softmax_sums, {id})};
      last().reads.push_back(logits.data);
      last().writes.push_back(whole_of(Buffer::softmax_sums));
    }
  } else {
    const Access gradient{Buffer::output, Phase::backward, pass.layer, 0, 1, pass.micro_batch};
    id = push(TaskKind::head, logits.after);
    last().reads = {head_inputs_.at(pass.micro_batch).data, logits.data};
    if (spans(GroupKind::mp)) last().reads.push_back(access(Buffer::softmax_sums, Phase::forward));
    last().writes.push_back(spans(GroupKind::mp) ? whole_of(Buffer::end_partial) : gradient);
    ours[pass.phase] = sum_of_end(id, gradient);
  }
  pass_ = nullptr;
  return id;
}

bool IterationBuilder::shards_rows_over_mp() const {
  return spans(GroupKind::mp) && traits_of(schedule_.flow).holds == Tokens::own;
}

// Adds an AllGather of an end's input rows if each MP rank has only the rows of its own tokens.
IterationBuilder::Chain IterationBuilder::rows_of_end(const Chain& rows) {
  if (!shards_rows_over_mp()) return rows;
  const int id = push(TaskKind::end_allgather, rows.after);
  last().reads.push_back(rows.data);
  last().writes.push_back(whole_of(Buffer::end_input));
  return {{id}, last().writes.front()};
}

// Adds the sum over MP of the output of task `made`, written to `sum`; without MP, `made` itself writes `sum`.
IterationBuilder::Chain IterationBuilder::sum_of_end(int made, const Access& sum) {
  if (!spans(GroupKind::mp)) return {{made}, sum};
  const int id = push(shards_rows_over_mp() ? TaskKind::end_reducescatter : TaskKind::end_allreduce, {made});
  last().reads.push_back(whole_of(Buffer::end_partial));
  last().writes.push_back(sum);
  return {{id}, sum};
}

void IterationBuilder::finish(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts) {
  Pass pass{.phase = Phase::backward, .stage = stage, .layer = layer, .ready = ready};
  pass.gradients.experts = experts;
  pass_ = &pass;
  begin_slices();
  for (size_t i = 0; i < ready.size(); ++i) gradient(i);
  pass_ = nullptr;
}

int IterationBuilder::finish(TaskKind kind, int stage, int layer, const std::vector<int>& after) {
  const Pass pass{.phase = Phase::backward, .stage = stage, .layer = layer};
  pass_ = &pass;
  const int id = push(kind, after);
  pass_ = nullptr;
  return id;
}

void IterationBuilder::optimize(int stage, int layer) {
  std::vector<int> all;
  for (const Task& task : structure_.tasks)
    if (structure_.lanes[task.lane].stage == stage) all.push_back(task.id);
  finish(TaskKind::optimizer, stage, layer, all);
}

void IterationBuilder::begin_remaining(int stage, int layer, const std::vector<int>& ready,
                                       const std::vector<bool>& experts) {
  remaining_ = Pass{.phase = Phase::backward, .stage = stage, .layer = layer, .ready = ready};
  remaining_.gradients.experts = experts;
  pass_ = &remaining_;
  begin_slices();
}

int IterationBuilder::step(TaskKind kind, int stage, int layer, const std::vector<int>& after, int slice) {
  const Pass pass{.phase = Phase::step, .stage = stage, .layer = layer};
  const Pass* before = std::exchange(pass_, &pass);
  const int id = push(kind, after);
  if (slice >= 0) ++structure_.slices;
  last().slice = structure_.tasks.back().slice = slice;
  pass_ = before;
  return id;
}

void IterationBuilder::gather_weights(int stage, const std::vector<int>& layers, const DenseLayers& dense) {
  const int stepped = structure_.tasks.back().id;
  for (const int layer : layers) {
    const Pass pass{.phase = Phase::backward, .stage = stage, .layer = layer};
    pass_ = &pass;
    if (spans(GroupKind::dp)) push(TaskKind::weights, {stepped});
    if (spans(GroupKind::edp) && !dense.has(layer)) push(TaskKind::expert_weights, {stepped});
    pass_ = nullptr;
  }
}

StepBuilder::StepBuilder(Plan& plan, IterationBuilder& builder)
    : plan_(plan), cases_(plan.shape, plan.dense, plan.whole), builder_(builder) {
  for (const Task& task : builder.tasks())
    if (task.phase == Phase::backward &&
        (makes_attention_gradients(task.kind) || makes_expert_gradients(task.kind) || computes_end(task.kind)))
      makers_[{makes_attention_gradients(task.kind) ? TaskKind::attention : whole_of(task.kind), task.layer}].push_back(
          task.id);
}

// Returns the tasks after which all gradients of a layer exist: its attentions. Gradients of an end without tasks count
// as made by the neighbouring layer.
const std::vector<int>& StepBuilder::makers_of(int layer) {
  if (plan_.is_end(layer) && plan_.vocabulary > 0) return makers(layer < 0 ? TaskKind::embed : TaskKind::head, layer);
  return makers(TaskKind::attention, std::clamp(layer, 0, plan_.layers - 1));
}

// The sum for gates and norms is short and every layer's step waits for it, so it is sent before slices that become
// ready at the same time.
void StepBuilder::send_remaining(const RemainingGradients& remaining, const std::vector<int>& ready,
                                 const std::vector<bool>& of_experts) {
  const std::vector<int> layers = layers_of(remaining.stage);
  builder_.begin_remaining(remaining.stage, layers.front(), ready, of_experts);
  bool summed = false;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i] >= remaining.end && !std::exchange(summed, true)) sum_replicated(remaining.stage);
    builder_.send_remaining(i);
  }
  builder_.end_remaining();
  if (!summed) sum_replicated(remaining.stage);
  if (remaining.experts && builder_.has(GroupKind::edp, remaining.stage))
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
      if (!plan_.dense.has(*layer))
        sum(remaining.stage,
            {{*layer, expert_gradient_bytes(plan_.shape), makers(TaskKind::expert, *layer).back(), true}});
  if (!plan_.ends.none() && builder_.has(GroupKind::stage, remaining.stage)) sum_ends(remaining.stage);
}

// Sums the gradients of a stage's replicated weights. A dense layer without norms has none.
void StepBuilder::sum_replicated(int stage) {
  std::vector<Gradient> all;
  const std::vector<int> layers = layers_of(stage);
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
    if (const int64_t bytes = stage_gradient_bytes(cases_.at(*layer)); bytes > 0)
      all.push_back({*layer, bytes, makers_of(*layer).back(), false, true});
  if (!all.empty() && builder_.has(GroupKind::stage, stage)) sum(stage, all);
}

void StepBuilder::sum_ends(int stage) {
  const LayerCase& c = plan_.shape;
  const auto add = [&](int layer, const StepWeights& weights) {
    const int64_t bytes = end_norm_bytes(c, weights);
    if (bytes > 0) sum(stage, {{layer, bytes, makers_of(layer).back(), false, true}});
  };
  if (stage + 1 == stages()) add(plan_.layers, plan_.ends.head);
  if (stage == 0) add(kEmbeddingLayer, plan_.ends.embedding);
}

// Sums all of these gradients in one slice.
void StepBuilder::sum(int stage, const std::vector<Gradient>& gradients) {
  GradientSlice slice{static_cast<int>(plan_.gradients.size()), 0, 0};
  for (const Gradient& gradient : gradients) slice.end += gradient.bytes;
  plan_.gradients.insert(plan_.gradients.end(), gradients.begin(), gradients.end());
  plan_.slices.push_back(slice);
  std::vector<int> after;
  for (const Gradient& gradient : gradients) {
    const std::vector<int>& made =
        gradient.experts ? makers(TaskKind::expert, gradient.layer) : makers_of(gradient.layer);
    after.insert(after.end(), made.begin(), made.end());
  }
  const Gradient& last = gradients.back();
  builder_.step(last.sent_by(), stage, last.layer, after, static_cast<int>(plan_.slices.size()) - 1);
}

// Returns, for each gradient, the tasks that send it. Only finished stages count, because the slices of the others do
// not yet have their final gradient numbers.
std::vector<std::vector<int>> StepBuilder::senders(const std::vector<int>& finished) const {
  std::vector<int> tasks(plan_.slices.size(), -1);
  std::vector<std::vector<int>> senders(plan_.gradients.size());
  for (const Task& task : builder_.tasks())
    if (task.slice >= 0 && std::ranges::count(finished, builder_.stage_of(task)) > 0) tasks[task.slice] = task.id;
  for (size_t s = 0; s < plan_.slices.size(); ++s) {
    if (tasks[s] < 0) continue;
    int64_t begin = plan_.slices[s].begin, left = plan_.slices[s].bytes();
    for (auto g = static_cast<size_t>(plan_.slices[s].gradient); left > 0; ++g, begin = 0) {
      const int64_t here = std::min(left, plan_.gradients[g].bytes - begin);
      if (here > 0) senders[g].push_back(tasks[s]);
      left -= here;
    }
  }
  return senders;
}

// Returns the layers and ends of a stage in the order in which the optimizer updates them, the last layer first.
std::vector<int> StepBuilder::stepped(int stage) const {
  std::vector<int> all = layers_of(stage);
  std::ranges::reverse(all);
  const auto is_there = [&](int end) {
    return !plan_.ends.none() ||
           std::ranges::any_of(plan_.gradients, [&](const Gradient& g) { return g.layer == end; });
  };
  if (stage + 1 == stages() && is_there(plan_.layers)) all.push_back(plan_.layers);
  if (stage == 0 && is_there(kEmbeddingLayer)) all.push_back(kEmbeddingLayer);
  return all;
}

void StepBuilder::step() {
  std::map<int, std::vector<int>> sums;  // for each layer, the tasks that its optimizer task waits for
  std::vector<int> all(stages());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::vector<int>> sent_by = senders(all);
  for (size_t g = 0; g < sent_by.size(); ++g) {
    std::vector<int>& of_layer = sums[plan_.gradients[g].layer];
    of_layer.insert(of_layer.end(), sent_by[g].begin(), sent_by[g].end());
  }
  for (int stage = 0; stage < stages(); ++stage)
    for (const int layer : stepped(stage)) {
      const std::vector<int>& made = makers_of(layer);
      sums[layer].insert(sums[layer].end(), made.begin(), made.end());
    }
  std::map<int, int> stored;  // for each layer, its store task
  for (int stage = stages(); stage-- > 0;)
    for (const auto& [layer, after] : stores(stage, sent_by))
      stored[layer] = builder_.step(TaskKind::store, stage, layer, after);
  if (plan_.step.tied && !plan_.ends.none() && stages() > 1) sum_tied(sums);
  std::vector<int> norms(stages(), -1);
  if (plan_.step.clips) add_norms(sums, norms);
  for (int stage = stages(); stage-- > 0;) {
    for (const int layer : stepped(stage)) {
      std::set<int> after(sums[layer].begin(), sums[layer].end());
      after.insert(norms[stage]);
      builder_.step(TaskKind::optimizer, stage, layer, {after.begin(), after.end()});
      if (const auto own = stored.find(layer); own != stored.end())
        builder_.step(TaskKind::host_optimizer, stage, layer, {own->second, norms[stage]});
    }
    if (plan_.shape.parallel.zero > 0) gather(stage);
  }
}

// Returns the layers of a stage with offloaded experts, in the order in which their gradients are made, each with the
// tasks after which these gradients are complete. `sent_by`: for each gradient, the tasks that send it.
std::vector<std::pair<int, std::vector<int>>> StepBuilder::stores(int stage,
                                                                  const std::vector<std::vector<int>>& sent_by) {
  std::vector<std::pair<int, std::vector<int>>> stores;
  if (plan_.shape.parallel.offload == Offload::none) return stores;
  const std::vector<int> layers = layers_of(stage);
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (plan_.dense.has(*layer)) continue;
    std::vector<int> after = makers(TaskKind::expert, *layer);
    for (size_t g = 0; g < sent_by.size(); ++g)
      if (plan_.gradients[g].experts && plan_.gradients[g].layer == *layer)
        after.insert(after.end(), sent_by[g].begin(), sent_by[g].end());
    stores.emplace_back(*layer, std::move(after));
  }
  return stores;
}

void StepBuilder::store(int stage) {
  for (const auto& [layer, after] : stores(stage, senders({stage})))
    builder_.finish(TaskKind::store, stage, layer, after);
}

// Adds the sum of a tied embedding over both end stages, after the sums of the ends themselves. `sums`: for each layer
// or end, the tasks that its optimizer task waits for; the new sums are added.
void StepBuilder::sum_tied(std::map<int, std::vector<int>>& sums) {
  std::set<int> after;
  for (const int end : {kEmbeddingLayer, plan_.layers}) after.insert(sums[end].begin(), sums[end].end());
  const std::vector<int> all(after.begin(), after.end());
  for (const auto& [stage, end] : {std::pair{stages() - 1, plan_.layers}, {0, kEmbeddingLayer}})
    sums[end].push_back(builder_.step(TaskKind::tied_gradient, stage, end, all));
}

// Adds the norm of the gradients. Sets `norms`: for each stage, the task that its optimizer tasks wait for.
void StepBuilder::add_norms(const std::map<int, std::vector<int>>& sums, std::vector<int>& norms) {
  std::vector<int> squares;
  for (int stage = stages(); stage-- > 0;) {
    std::set<int> after;
    for (const int layer : stepped(stage))
      if (const auto found = sums.find(layer); found != sums.end())
        after.insert(found->second.begin(), found->second.end());
    squares.push_back(builder_.step(TaskKind::squares, stage, layers_of(stage).front(), {after.begin(), after.end()}));
    norms[stage] = squares.back();
  }
  if (!builder_.has(GroupKind::world, 0)) return;
  for (int stage = stages(); stage-- > 0;)
    norms[stage] = builder_.step(TaskKind::norm, stage, layers_of(stage).front(), squares);
}

// Adds the gathers of a stage's weights in the order of the optimizer's tasks; replicated weights follow after all of
// these.
void StepBuilder::gather(int stage) {
  const int first = layers_of(stage).front();
  std::map<int, int> steps;
  for (const Task& task : builder_.tasks())
    if (task.kind == TaskKind::optimizer) steps[task.layer] = task.id;
  const bool dense = builder_.has(GroupKind::dp, stage), experts = builder_.has(GroupKind::edp, stage);
  for (const int layer : stepped(stage)) {
    const std::vector<int> after{steps.at(layer)};
    const bool end = plan_.is_end(layer);
    if (dense && !end) builder_.step(TaskKind::weights, stage, layer, after);
    if (experts && !end && !plan_.dense.has(layer)) builder_.step(TaskKind::expert_weights, stage, layer, after);
    if (dense && end) builder_.step(TaskKind::stage_weights, stage, layer, after);
    if (!dense || layer != first) continue;
    std::vector<int> all;
    for (const int other : stepped(stage))
      if (other >= 0 && other < plan_.layers) all.push_back(steps.at(other));
    builder_.step(TaskKind::stage_weights, stage, layer, all);
  }
}

}  // namespace moe::schedule
