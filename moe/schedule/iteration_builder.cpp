#include "moe/schedule/iteration_builder.h"

#include <utility>

namespace moe::schedule {

void IterationBuilder::transfer(const Pass& from) {
  pass_ = &from;
  if (lane_of(GroupKind::pp) >= 0) {
    const Chain& output = outputs_[{from.micro_batch, from.layer}][static_cast<size_t>(from.phase)];
    const int sent = push(TaskKind::send, behind_last(TaskKind::send, output.after));
    last().reads.push_back(output.data);
    sent_[{from.phase, from.micro_batch, from.layer}] = sent;
  }
  pass_ = nullptr;
}

// Ends stand where a layer before the first and one behind the last would. Where MP ranks share out the vocabulary,
// each computes its part for the tokens of all of them.
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
    outputs_[{pass.micro_batch, before.layer}][static_cast<size_t>(pass.phase)] = sum_of_end(id, input);
  } else {
    const Chain gradient = rows_of_end(outputs_.at({pass.micro_batch, 0})[static_cast<size_t>(pass.phase)]);
    id = push(TaskKind::embed, gradient.after);
    last().reads.push_back(gradient.data);
    last().writes.push_back(whole_of(Buffer::gradient));
    outputs_[{pass.micro_batch, before.layer}][static_cast<size_t>(pass.phase)] = {{id}, last().writes.front()};
  }
  pass_ = nullptr;
  return id;
}

int IterationBuilder::head(const Pass& pass) {
  Pass behind = pass;
  ++behind.layer;
  pass_ = &behind;
  auto& ours = outputs_[{pass.micro_batch, behind.layer}];
  const Chain& output = outputs_.at({pass.micro_batch, pass.layer})[static_cast<size_t>(Phase::forward)];
  Chain& logits = ours[static_cast<size_t>(Phase::forward)];
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
    if (spans(GroupKind::mp)) last().reads.push_back(of(Buffer::softmax_sums, Phase::forward));
    last().writes.push_back(spans(GroupKind::mp) ? whole_of(Buffer::end_partial) : gradient);
    ours[static_cast<size_t>(pass.phase)] = sum_of_end(id, gradient);
  }
  pass_ = nullptr;
  return id;
}

bool IterationBuilder::rows_apart() const {
  return spans(GroupKind::mp) && traits_of(schedule_.flow).holds == Tokens::own;
}

// Adds the AllGather of rows of which each MP rank has those of its own tokens.
IterationBuilder::Chain IterationBuilder::rows_of_end(const Chain& rows) {
  if (!rows_apart()) return rows;
  const int id = push(TaskKind::end_allgather, rows.after);
  last().reads.push_back(rows.data);
  last().writes.push_back(whole_of(Buffer::end_input));
  return {{id}, last().writes.front()};
}

// Adds the sum over MP of what `made` wrote; without MP that is the sum.
IterationBuilder::Chain IterationBuilder::sum_of_end(int made, const Access& sum) {
  if (!spans(GroupKind::mp)) return {{made}, sum};
  const int id = push(rows_apart() ? TaskKind::end_reducescatter : TaskKind::end_allreduce, {made});
  last().reads.push_back(whole_of(Buffer::end_partial));
  last().writes.push_back(sum);
  return {{id}, sum};
}

void IterationBuilder::finish(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts) {
  Pass pass{.phase = Phase::backward, .stage = stage, .layer = layer, .ready = ready};
  pass.gradients.experts = experts;
  pass_ = &pass;
  begin_slices();
  std::vector<int> all;
  for (size_t i = 0; i < ready.size(); ++i) gradient(i);
  for (const Task& task : structure_.tasks)
    if (structure_.lanes[static_cast<size_t>(task.lane)].stage == stage) all.push_back(task.id);
  push(TaskKind::optimizer, all);
  pass_ = nullptr;
}

void IterationBuilder::begin_left(int stage, int layer, const std::vector<int>& ready,
                                  const std::vector<bool>& experts) {
  left_ = Pass{.phase = Phase::backward, .stage = stage, .layer = layer, .ready = ready};
  left_.gradients.experts = experts;
  pass_ = &left_;
  begin_slices();
}

int IterationBuilder::step(TaskKind kind, int stage, int layer, const std::vector<int>& after, int slice) {
  const Pass pass{.phase = Phase::step, .stage = stage, .layer = layer};
  const Pass* before = std::exchange(pass_, &pass);
  const int id = push(kind, after);
  if (slice >= 0) ++structure_.slices;
  last().slice = structure_.classes.back().slice = slice;
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

}  // namespace moe::schedule
