#include "moe/layer/binding/dense_part.h"

namespace moe::layer {

void DensePart::gate(const Task& task) {
  if (task.phase == Phase::backward) return gate_backward(task.phase);
  LayerBuffers& b = layer_.buffers;
  hooks_.begin_moe(task.phase);
  if (layer_.parts.gate_norm) layer_.parts.gate_norm->forward(b.forward.gate_input, b.normed);
  layer_.parts.gate->forward(b.normed, layer_.routing);
}

void DensePart::gate_backward(Phase phase) {
  LayerBuffers& b = layer_.buffers;
  const double share = 1.0 / rank().gate_copies();
  // Each of several ranks that gate a token has all of d_weight, but of d_fill its own shard of the experts' part.
  if (rank().gate_copies() > 1) math().scale(layer_.d_weight, share);
  const TensorView d = b.backward.gate_input;
  layer_.parts.gate->backward({b.normed, layer_.routing, layer_.d_weight, layer_.d_fill, d, share, layer_.into.gate});
  shared_.add_to(phase, d);
  const bool post = layer_.parts.output_norm != nullptr;
  if (post) add_residual_gradient(d);
  if (layer_.parts.gate_norm) layer_.parts.gate_norm->backward(b.forward.gate_input, d, layer_.into.gate);
  if (!post) add_residual_gradient(d);
  hooks_.end_moe(phase);
}

// Adds the residual's gradient of each token, on one of the ranks that gate it.
void DensePart::add_residual_gradient(TensorView d) {
  if (!rank().shape.layer.residual) return;
  const TensorView all = hooks_.moe_gradient();
  const int64_t m = rank().model_dim(), counted = all.size(0) / rank().gate_copies();
  const int64_t first = rank().gate_copies() > 1 ? rank().esp * counted : 0;
  math().add(all.part(first * m, {counted, m}), d.part(first * m, {counted, m}));
}

void DensePart::order(const Task& task) {
  LayerBuffers& b = layer_.buffers;
  Order& order = *layer_.parts.order;
  if (task.phase == Phase::forward)
    return order.order(layer_.routing, b.normed, {b.forward.home, plan_.layouts(task).home});
  order.order_backward(layer_.routing, b.normed, home_rows(task.phase), b.backward.gate_input, layer_.d_fill);
}

void DensePart::i_order(const Task& task) {
  LayerBuffers& b = layer_.buffers;
  Order& order = *layer_.parts.order;
  if (task.phase == Phase::backward) {
    hooks_.begin_moe(task.phase);
    return order.i_order_backward(layer_.routing, hooks_.moe_gradient(), home_rows(Phase::forward),
                                  {b.backward.home, plan_.layouts(task).home}, layer_.d_weight);
  }
  const bool post = layer_.parts.output_norm != nullptr;
  const TensorView sum = post ? b.summed : b.forward.moe_output;
  order.i_order(layer_.routing, home_rows(task.phase), sum);
  shared_.add_to(task.phase, sum);
  if (rank().shape.layer.residual) math().add(post ? b.normed : b.forward.gate_input, sum);
  if (post) layer_.parts.output_norm->forward(sum, b.forward.moe_output);
  hooks_.end_moe(task.phase);
}

RowsView DensePart::home_rows(Phase phase) {
  const PhaseBuffers& b = layer_.buffers.of(phase);
  const PhaseLayouts& l = plan_.of(phase).layouts;
  if (plan_.of(phase).cuts.lays_out) return {b.laid_out, l.laid_out};
  return l.gathers_home() ? RowsView{b.wide, l.wide} : RowsView{b.home, l.home_back};
}

void DensePart::tokens_allgather(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.hidden : b.output, to = forward ? b.gate_input : b.moe_output;
  layer_.comms.of(task.group).allgather(from.data(), to.data(), from.bytes(), call);
}

void DensePart::tokens_reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  layer_.comms.of(task.group)
      .reducescatter(b.gate_input.data(), b.hidden.data(), b.hidden.elements(), rank().dtype(), call);
}

void DensePart::sum_statistics(Stream& stream) {
  Communicator& everyone = layer_.comms.of(GroupKind::none);
  const TensorView sums = layer_.parts.gate->statistics();
  if (sums.elements() > 0 && sums.data() != nullptr && everyone.size() > 1)
    everyone.allreduce(sums.data(), sums.elements(), sums.dtype(), {stream, {}, "sums of the auxiliary losses"});
}

}  // namespace moe::layer
