#include "moe/schedule/iteration_builder.h"

#include <utility>

namespace moe {

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

// Ends stand where a layer before the first and one behind the last would.
void IterationBuilder::embed(const Pass& pass) {
  Pass before = pass;
  before.layer = -1;
  pass_ = &before;
  const bool forward = pass.phase == Phase::forward;
  const Chain gradient = forward ? Chain() : outputs_.at({pass.micro_batch, 0})[static_cast<size_t>(pass.phase)];
  const int id = push(TaskKind::embed, gradient.after);
  if (!forward) last().reads.push_back(gradient.data);
  const Access input{Buffer::input, Phase::forward, 0, 0, 1, pass.micro_batch};
  last().writes.push_back(forward ? input : whole_of(Buffer::gradient));
  outputs_[{pass.micro_batch, -1}][static_cast<size_t>(pass.phase)] = {{id}, last().writes.front()};
  pass_ = nullptr;
}

void IterationBuilder::head(const Pass& pass) {
  Pass behind = pass;
  ++behind.layer;
  pass_ = &behind;
  const Chain& output = outputs_.at({pass.micro_batch, pass.layer})[static_cast<size_t>(Phase::forward)];
  std::vector<int> after = output.after;
  const Access logits = of(Buffer::logits, Phase::forward);
  auto& ours = outputs_[{pass.micro_batch, behind.layer}];
  if (pass.phase == Phase::backward) after = ours[static_cast<size_t>(Phase::forward)].after;
  const int id = push(TaskKind::head, after);
  last().reads.push_back(output.data);
  if (pass.phase == Phase::forward) {
    last().writes.push_back(logits);
  } else {
    last().reads.push_back(logits);
    last().writes.push_back({Buffer::output, Phase::backward, pass.layer, 0, 1, pass.micro_batch});
  }
  ours[static_cast<size_t>(pass.phase)] = {{id}, last().writes.front()};
  pass_ = nullptr;
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

void IterationBuilder::gather_weights(int stage, std::pair<int, int> layers, const DenseLayers& dense) {
  const int stepped = structure_.tasks.back().id;
  for (int layer = layers.first; layer < layers.second; ++layer) {
    const Pass pass{.phase = Phase::backward, .stage = stage, .layer = layer};
    pass_ = &pass;
    if (spans(GroupKind::dp)) push(TaskKind::weights, {stepped});
    if (spans(GroupKind::edp) && !dense.has(layer)) push(TaskKind::expert_weights, {stepped});
    pass_ = nullptr;
  }
}

}  // namespace moe
