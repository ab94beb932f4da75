#include "moe/layer/binding/parts.h"

namespace moe::layer {

void AttentionPart::attention(const Task& task) {
  LayerBuffers& b = layer_.buffers;
  const LayerParts& parts = layer_.parts;
  const TensorView in = b.forward.mp_input;
  if (task.phase == Phase::forward) {
    if (parts.attention_norm && !has_cp()) parts.attention_norm->forward(in, read());
    parts.attention->forward(read(), b.forward.mp_partial);
    return add_residual(in, b.forward.mp_partial);
  }
  parts.attention->backward_input(b.backward.mp_partial, b.backward.mp_input);
  if (task.kind == TaskKind::attention) attention_dw(task);
  if (!has_cp()) end_backward();
}

// Attention computes keys and values first in a forward, and last in a backward.
void AttentionPart::keys_values(const Task& task) {
  const LayerParts& parts = layer_.parts;
  if (task.phase == Phase::forward) {
    if (parts.attention_norm) parts.attention_norm->forward(layer_.buffers.forward.mp_input, read());
    return parts.attention->keys_values(read());
  }
  parts.attention->keys_values_backward(read(), layer_.buffers.backward.mp_input, layer_.gradients.fresh,
                                        layer_.into.keys_values);
  end_backward();
}

void AttentionPart::heads(const Task& task) { layer_.parts.attention->heads(task.phase, task.chunk); }

void AttentionPart::end_backward() {
  const PhaseBuffers& b = layer_.buffers.backward;
  if (layer_.parts.attention_norm)
    layer_.parts.attention_norm->backward(layer_.buffers.forward.mp_input, b.mp_input, layer_.into.attention_norm);
  add_residual(b.mp_partial, b.mp_input);
}

// The residual is added to this rank's part of the sum over MP, for its own tokens only, so each token's counts once.
void AttentionPart::add_residual(TensorView from, TensorView to) const {
  if (!rank().shape.layer.residual) return;
  const int64_t m = rank().model_dim(), own = rank().tokens.count;
  const int64_t own_row = rank().tokens.first - rank().mp_group().first;
  math().add(from.part(own_row * m, {own, m}), to.part(own_row * m, {own, m}));
}

void AttentionPart::attention_dw(const Task&) {
  layer_.parts.attention->backward_weights(read(), layer_.buffers.backward.mp_partial, layer_.gradients.fresh,
                                           layer_.into.attention);
}

// Returns the input of attention.
TensorView AttentionPart::read() const {
  return layer_.parts.attention_norm ? layer_.buffers.normed_input : layer_.buffers.forward.mp_input;
}

void AttentionPart::mp_allgather(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const bool forward = task.phase == Phase::forward;
  Communicator& mp = layer_.comms.communicator(task.group);
  if (rank().traits().gathers_tokens()) {  // the gather is in place
    const TensorView whole = forward ? b.output : b.hidden;
    const int64_t own = rank().tokens.count * rank().model_dim();
    return mp.allgather(whole.at(rank().mp * own), whole.data(), own * bytes_of(rank().dtype()), call);
  }
  const TensorView from = forward ? b.input : b.hidden, to = forward ? b.mp_input : b.mp_partial;
  mp.allgather(from.data(), to.data(), from.bytes(), call);
}

void AttentionPart::mp_reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.mp_partial : b.mp_input, to = forward ? b.hidden : b.input;
  layer_.comms.communicator(task.group).reducescatter(from.data(), to.data(), to.elements(), rank().dtype(), call);
}

void AttentionPart::mp_allreduce(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const TensorView whole = task.phase == Phase::forward ? b.mp_partial : b.mp_input;
  layer_.comms.communicator(task.group).allreduce(whole.data(), whole.elements(), rank().dtype(), call);
}

void AttentionPart::cp_allgather(const Task& task, CommCall call) {
  Attention& attention = *layer_.parts.attention;
  const TensorView own = attention.local_keys_values(task.phase), all = attention.all_keys_values(task.phase);
  layer_.comms.communicator(task.group).allgather(own.data(), all.data(), own.bytes(), call);
}

void AttentionPart::cp_reducescatter(const Task& task, CommCall call) {
  Attention& attention = *layer_.parts.attention;
  const TensorView own = attention.local_keys_values(task.phase), all = attention.all_keys_values(task.phase);
  layer_.comms.communicator(task.group).reducescatter(all.data(), own.data(), own.elements(), rank().dtype(), call);
}

namespace {

// Sends to the next rank of the group, and receives as many bytes from the one before.
void send_to_next(Communicator& comm, TensorView from, TensorView to, CommCall call) {
  const auto ranks = static_cast<size_t>(comm.size()), rank = static_cast<size_t>(comm.rank());
  std::vector<int64_t> sent(ranks, 0), received(ranks, 0);
  sent[(rank + 1) % ranks] = from.bytes();
  received[(rank + ranks - 1) % ranks] = to.bytes();
  comm.alltoallv(from.data(), std::move(sent), to.data(), std::move(received), call);
}

}  // namespace

void AttentionPart::cp_send(const Task& task, CommCall call) {
  Attention& attention = *layer_.parts.attention;
  send_to_next(layer_.comms.communicator(task.group), attention.block(task.phase, task.chunk),
               attention.block(task.phase, task.chunk + 1), call);
}

void AttentionPart::cp_gradient_send(const Task& task, CommCall call) {
  Attention& attention = *layer_.parts.attention;
  const TensorView received = attention.local_keys_values(task.phase), own = attention.block_gradients(task.chunk);
  if (task.chunk > 0)
    call.stream.launch([this, received, own](void* native) {
      math().use(native);
      math().add(received, own);
    });
  send_to_next(layer_.comms.communicator(task.group), own, received, call);
}

// The residual is added to this rank's part of the sum over MP, for its own tokens only, so each token's counts once.
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
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.hidden : b.output, to = forward ? b.shared_in : b.shared_out;
  layer_.comms.communicator(task.group).allgather(from.data(), to.data(), from.bytes(), call);
}

void FfnPart::reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.shared_out : b.shared_in, to = forward ? b.output : b.hidden;
  layer_.comms.communicator(task.group)
      .reducescatter(from.data(), to.data(), to.elements(), layer_.shape.dtype(), call);
}

void FfnPart::allreduce(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const TensorView whole = task.phase == Phase::forward ? b.shared_out : b.shared_in;
  layer_.comms.communicator(task.group).allreduce(whole.data(), whole.elements(), layer_.shape.dtype(), call);
}

// Returns the rows of the rank's own MP group if it gates the tokens of several groups; else all rows.
TensorView SharedPart::own_group_part(TensorView gated) const {
  const RankShape& rank = layer_.shape;
  const int64_t m = rank.model_dim(), own = gated.size(0) / rank.gate_copies();
  return gated.part(rank.gate_copies() > 1 ? rank.esp * own * m : 0, {own, m});
}

TensorView SharedPart::moe_input(Phase phase) const {
  return own_group_part(phase == Phase::forward ? layer_.buffers.normed : hooks_.moe_gradient());
}

void SharedPart::allgather(const Task& task, CommCall call) {
  const TensorView own = moe_input(task.phase), all = layer_.buffers.phase_buffers(task.phase).shared_in;
  layer_.comms.communicator(task.group).allgather(own.data(), all.data(), own.bytes(), call);
}

void SharedPart::shared(const Task& task) {
  const LayerBuffers& b = layer_.buffers;
  const bool gathers = b.forward.shared_in.data() != nullptr, forward = task.phase == Phase::forward;
  const TensorView input = gathers ? b.forward.shared_in : moe_input(Phase::forward);
  const std::array rows{Rows{0, input.size(0)}};
  if (forward) return layer_.parts.shared->forward(input, rows, b.forward.shared_out);
  const TensorView d_output = gathers ? b.backward.shared_in : moe_input(Phase::backward);
  layer_.parts.shared->backward({input, rows, d_output, b.backward.shared_out},
                                layer_.shared_gradients(layer_.gradients.fresh), layer_.into.shared);
}

void SharedPart::reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  layer_.comms.communicator(task.group)
      .reducescatter(b.shared_out.data(), b.shared_sum.data(), b.shared_sum.elements(), layer_.shape.dtype(), call);
}

void SharedPart::allreduce(const Task& task, CommCall call) {
  const TensorView whole = layer_.buffers.phase_buffers(task.phase).shared_out;
  layer_.comms.communicator(task.group).allreduce(whole.data(), whole.elements(), layer_.shape.dtype(), call);
}

void SharedPart::add_to(Phase phase, TensorView gated) const {
  if (layer_.parts.shared) layer_.math().add(layer_.buffers.phase_buffers(phase).shared_sum, own_group_part(gated));
}

ExpertPart::ExpertPart(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan) {
  const auto experts = static_cast<size_t>(layer.shape.experts.count);
  for (Places& places : places_) places = {std::vector<Rows>(experts), std::vector<Rows>(experts)};
}

int64_t ExpertPart::place(Phase phase, Rows rows) {
  auto& [at, packed] = places_[phase];
  plan_.phase(phase).rows.chunk_rows(plan_.phase(phase).layouts.gathered, rows, at);
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
  const PhaseBuffers& own = b.phase_buffers(task.phase);
  const Rows rows = gathered.chunk(task.chunk);
  place(task.phase, rows);
  layer_.device.unpack(gathered, rows, own.gathered, task.phase == Phase::forward ? b.expert_input : own.rows_in,
                       places_[task.phase].at);
}

void ExpertPart::expert(const Task& task) {
  const BoundPhase& phase = plan_.phase(task.phase);
  const LayerBuffers& b = layer_.buffers;
  const PhaseBuffers& own = b.phase_buffers(task.phase);
  const TensorView wire = own.gathered;
  const int64_t m = layer_.shape.model_dim();
  const Rows rows = chunk_rows(layer_.shape.rows, task.chunks, task.chunk);
  const int64_t all = place(task.phase, rows);
  const auto& [at, packed] = places_[task.phase];
  const TensorView in = own.rows_in.part(0, {all, m}), out = own.rows_out.part(0, {all, m});
  if (task.phase == Phase::forward) {
    if (!phase.copies) layer_.device.unpack(phase.layouts.gathered, rows, wire, b.expert_input, at);
    layer_.parts.expert->forward(b.expert_input, at, out);
  } else if (task.kind == TaskKind::expert_dx) {  // the other half reads its input at the expert's rows
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
  const Into into = task.id == plan_.phase(task.phase).first_expert ? layer_.into.experts : Into::add;
  layer_.parts.expert->backward_weights(
      {b.expert_input, places_[task.phase].at, b.phase_buffers(task.phase).rows_in, {}}, layer_.expert_gradients, into);
}

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
  // If several ranks gate a token, each has all of d_weight, but only its shard of the experts' part of d_fill.
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

// Adds each token's gradient of the residual, on only one of the ranks that gate it.
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
  const PhaseBuffers& b = layer_.buffers.phase_buffers(phase);
  const PhaseLayouts& l = plan_.phase(phase).layouts;
  if (plan_.phase(phase).cuts.lays_out) return {b.laid_out, l.laid_out};
  return l.gathers_home() ? RowsView{b.wide, l.wide} : RowsView{b.home, l.home_back};
}

void DensePart::tokens_allgather(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const bool forward = task.phase == Phase::forward;
  const TensorView from = forward ? b.hidden : b.output, to = forward ? b.gate_input : b.moe_output;
  layer_.comms.communicator(task.group).allgather(from.data(), to.data(), from.bytes(), call);
}

void DensePart::tokens_reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  layer_.comms.communicator(task.group)
      .reducescatter(b.gate_input.data(), b.hidden.data(), b.hidden.elements(), rank().dtype(), call);
}

void DensePart::sum_statistics(Stream& stream) {
  Communicator& world_comm = layer_.comms.communicator(GroupKind::none);
  const TensorView sums = layer_.parts.gate->statistics();
  if (sums.elements() > 0 && sums.data() != nullptr && world_comm.size() > 1)
    world_comm.allreduce(sums.data(), sums.elements(), sums.dtype(), {stream, {}, "sums of the auxiliary losses"});
}

}  // namespace moe::layer
