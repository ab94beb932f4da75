#include "moe/layer/binding/shared_part.h"

namespace moe::layer {

// Returns the rows of the rank's own MP group, where it gates the tokens of several; else all.
TensorView SharedPart::of_own(TensorView gated) const {
  const RankShape& rank = layer_.shape;
  const int64_t m = rank.model_dim(), own = gated.size(0) / rank.gate_copies();
  return gated.part(rank.gate_copies() > 1 ? rank.esp * own * m : 0, {own, m});
}

TensorView SharedPart::given(Phase phase) const {
  return of_own(phase == Phase::forward ? layer_.buffers.normed : hooks_.moe_gradient());
}

void SharedPart::allgather(const Task& task, CommCall call) {
  const TensorView own = given(task.phase), all = layer_.buffers.of(task.phase).shared_in;
  layer_.comms.of(task.group).allgather(own.data(), all.data(), own.bytes(), call);
}

void SharedPart::shared(const Task& task) {
  const LayerBuffers& b = layer_.buffers;
  const bool gathers = b.forward.shared_in.data() != nullptr, forward = task.phase == Phase::forward;
  const TensorView input = gathers ? b.forward.shared_in : given(Phase::forward);
  const std::array rows{Rows{0, input.size(0)}};
  if (forward) return layer_.parts.shared->forward(input, rows, b.forward.shared_out);
  const TensorView d_output = gathers ? b.backward.shared_in : given(Phase::backward);
  layer_.parts.shared->backward({input, rows, d_output, b.backward.shared_out},
                                layer_.shared_gradients(layer_.gradients.fresh), layer_.into.shared);
}

void SharedPart::reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  layer_.comms.of(task.group)
      .reducescatter(b.shared_out.data(), b.shared_sum.data(), b.shared_sum.elements(), layer_.shape.dtype(), call);
}

void SharedPart::allreduce(const Task& task, CommCall call) {
  const TensorView whole = layer_.buffers.of(task.phase).shared_out;
  layer_.comms.of(task.group).allreduce(whole.data(), whole.elements(), layer_.shape.dtype(), call);
}

void SharedPart::add_to(Phase phase, TensorView gated) const {
  if (layer_.parts.shared) layer_.math().add(layer_.buffers.of(phase).shared_sum, of_own(gated));
}

}  // namespace moe::layer
