#include "moe/layer/binding/ffn_part.h"

namespace moe::layer {

// The residual goes into this rank's part of the sum over MP, for its own tokens: so each token's is added once.
void FfnPart::ffn(const Task& task) {
  const RankShape& rank = layer_.shape;
  LayerBuffers& b = layer_.buffers;
  const LayerParts& parts = layer_.parts;
  const bool forward = task.phase == Phase::forward;
  const TensorView in = b.forward.shared_in, read = parts.gate_norm ? b.normed : in;
  const TensorView from = forward ? in : b.backward.shared_out,
                   to = forward ? b.forward.shared_out : b.backward.shared_in;
  const std::array rows{Rows{0, read.size(0)}};
  if (forward) {
    if (parts.gate_norm) parts.gate_norm->forward(in, read);
    parts.shared->forward(read, rows, to);
  } else {
    parts.shared->backward({read, rows, from, to}, layer_.shared_gradients(layer_.gradients.fresh), layer_.into.shared);
    if (parts.gate_norm) parts.gate_norm->backward(in, to, layer_.into.shared);
  }
  if (!rank.shape.layer.residual) return;
  const int64_t m = rank.model_dim(), own = rank.tokens.count;
  const int64_t own_row = rank.tokens.first - rank.mp_group().first;
  layer_.math().add(from.part(own_row * m, {own, m}), to.part(own_row * m, {own, m}));
}

void FfnPart::allgather(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.hidden : b.output, to = forward ? b.shared_in : b.shared_out;
  layer_.comms.of(task.group).allgather(from.data(), to.data(), from.bytes(), call);
}

void FfnPart::reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.shared_out : b.shared_in, to = forward ? b.output : b.hidden;
  layer_.comms.of(task.group).reducescatter(from.data(), to.data(), to.elements(), layer_.shape.dtype(), call);
}

void FfnPart::allreduce(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const TensorView whole = task.phase == Phase::forward ? b.shared_out : b.shared_in;
  layer_.comms.of(task.group).allreduce(whole.data(), whole.elements(), layer_.shape.dtype(), call);
}

}  // namespace moe::layer
