#include "moe/layer/binding/expert_part.h"

namespace moe::layer {

ExpertPart::ExpertPart(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan) {
  const auto experts = static_cast<size_t>(layer.shape.experts.count);
  for (Places& places : places_) places = {std::vector<Rows>(experts), std::vector<Rows>(experts)};
}

int64_t ExpertPart::place(Phase phase, Rows rows) {
  auto& [at, packed] = places_[static_cast<size_t>(phase)];
  plan_.of(phase).rows.of_chunk(plan_.of(phase).layouts.gathered, rows, at);
  int64_t all = 0;
  for (size_t e = 0; e < at.size(); ++e) {
    packed[e] = {all, all + at[e].count()};
    all = packed[e].end;
  }
  return all;
}

void ExpertPart::copy(const Task& task) {
  const RowLayout& gathered = plan_.layouts(task).gathered;
  const LayerBuffers& b = layer_.buffers;
  const PhaseBuffers& own = b.of(task.phase);
  const Rows rows = gathered.chunk(task.chunk);
  place(task.phase, rows);
  layer_.device.unpack(gathered, rows, own.gathered, task.phase == Phase::forward ? b.expert_input : own.rows_in,
                       places_[static_cast<size_t>(task.phase)].at);
}

void ExpertPart::expert(const Task& task) {
  const BoundPhase& phase = plan_.of(task.phase);
  const LayerBuffers& b = layer_.buffers;
  const PhaseBuffers& own = b.of(task.phase);
  const TensorView wire = own.gathered;
  const int64_t m = layer_.shape.model_dim();
  const Rows rows = chunk_rows(layer_.shape.rows, task.chunks, task.chunk);
  const int64_t all = place(task.phase, rows);
  const auto& [at, packed] = places_[static_cast<size_t>(task.phase)];
  const TensorView in = own.rows_in.part(0, {all, m}), out = own.rows_out.part(0, {all, m});
  if (task.phase == Phase::forward) {
    if (!phase.copies) layer_.device.unpack(phase.layouts.gathered, rows, wire, b.expert_input, at);
    layer_.parts.expert->forward(b.expert_input, at, out);
  } else if (task.kind == TaskKind::expert_dx) {  // what the other half reads stays at its rows
    if (!phase.copies) layer_.device.unpack(phase.layouts.gathered, rows, wire, own.rows_in, at);
    layer_.parts.expert->backward_inputs({b.expert_input, at, own.rows_in, out});
  } else {
    if (!phase.copies) layer_.device.unpack(phase.layouts.gathered, rows, wire, in, packed);
    const Into into = task.id == phase.first_expert ? layer_.into.experts : Into::add;
    layer_.parts.expert->backward({b.expert_input, at, in, out}, layer_.expert_gradients, into);
  }
  layer_.device.pack(phase.layouts.gathered_back, rows, out, packed, wire);
}

void ExpertPart::expert_dw(const Task& task) {
  const LayerBuffers& b = layer_.buffers;
  place(task.phase, chunk_rows(layer_.shape.rows, task.chunks, task.chunk));
  const Into into = task.id == plan_.of(task.phase).first_expert ? layer_.into.experts : Into::add;
  layer_.parts.expert->backward_weights(
      {b.expert_input, places_[static_cast<size_t>(task.phase)].at, b.of(task.phase).rows_in, {}},
      layer_.expert_gradients, into);
}

}  // namespace moe::layer
