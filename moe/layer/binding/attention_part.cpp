#include "moe/layer/binding/attention_part.h"

namespace moe::layer {

// The residual goes into this rank's part of the sum over MP, for its own tokens: so each token's is added once.
void AttentionPart::attention(const Task& task) {
  LayerBuffers& b = layer_.buffers;
  const LayerParts& parts = layer_.parts;
  const bool forward = task.phase == Phase::forward;
  const TensorView in = b.forward.mp_input;
  const TensorView from = forward ? in : b.backward.mp_partial,
                   to = forward ? b.forward.mp_partial : b.backward.mp_input;
  if (forward) {
    if (parts.attention_norm) parts.attention_norm->forward(in, read());
    parts.attention->forward(read(), to);
  } else {
    parts.attention->backward_input(from, to);
    if (task.kind == TaskKind::attention) attention_dw(task);
    if (parts.attention_norm) parts.attention_norm->backward(in, to, layer_.into.attention_norm);
  }
  if (!rank().shape.layer.residual) return;
  const int64_t m = rank().model_dim(), own = rank().tokens.count;
  const int64_t own_row = rank().tokens.first - rank().mp_group().first;
  math().add(from.part(own_row * m, {own, m}), to.part(own_row * m, {own, m}));
}

void AttentionPart::attention_dw(const Task&) {
  layer_.parts.attention->backward_weights(read(), layer_.buffers.backward.mp_partial, layer_.gradients.fresh,
                                           layer_.into.attention);
}

// Returns what attention reads.
TensorView AttentionPart::read() const {
  return layer_.parts.attention_norm ? layer_.buffers.normed_input : layer_.buffers.forward.mp_input;
}

void AttentionPart::mp_allgather(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const bool forward = task.phase == Phase::forward;
  Communicator& mp = layer_.comms.of(task.group);
  if (rank().traits().gathers_tokens()) {  // in place
    const TensorView whole = forward ? b.output : b.hidden;
    const int64_t own = rank().tokens.count * rank().model_dim();
    return mp.allgather(whole.at(rank().mp * own), whole.data(), own * bytes_of(rank().dtype()), call);
  }
  const TensorView from = forward ? b.input : b.hidden, to = forward ? b.mp_input : b.mp_partial;
  mp.allgather(from.data(), to.data(), from.bytes(), call);
}

void AttentionPart::mp_reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.mp_partial : b.mp_input, to = forward ? b.hidden : b.input;
  layer_.comms.of(task.group).reducescatter(from.data(), to.data(), to.elements(), rank().dtype(), call);
}

void AttentionPart::mp_allreduce(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const TensorView whole = task.phase == Phase::forward ? b.mp_partial : b.mp_input;
  layer_.comms.of(task.group).allreduce(whole.data(), whole.elements(), rank().dtype(), call);
}

}  // namespace moe::layer
