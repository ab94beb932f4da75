#include "moe/layer/binding.h"

#include <algorithm>

namespace moe {
void require_runnable(const Plan& plan) {
  require<Unsupported>(plan.layers == 1, "a layer runs plans of one layer, found {}", plan.layers);
  for (const Phase phase : {Phase::forward, Phase::backward}) cuts_of(plan, phase);
}

LayerBinding::PhasePart::PhasePart(const RankShape& rank, const Cuts& phase_cuts)
    : cuts(phase_cuts),
      layouts(rank, cuts),
      rows(layouts.gathered),
      at(static_cast<size_t>(rank.experts.count)),
      packed(at) {}

LayerBinding::LayerBinding(MoeLayer& layer, const Plan& plan)
    : layer_(layer),
      plan_(plan),
      parts_{{{layer.shape(), cuts_of(plan, Phase::forward)}, {layer.shape(), cuts_of(plan, Phase::backward)}}} {
  require<WrongResult>(plan.shape == layer.shape().shape, "the plan is for {} and another parallel shape or rounding",
                       describe(plan.shape.layer));
  require<WrongResult>(plan.structure->flow == layer.shape().flow, "the plan's flow is {}, the layer's {}",
                       name_of(plan.structure->flow), name_of(layer.shape().flow));
  require_equal(plan.rows, layer.shape().rows, "the plan's T_rank");
  require<Unsupported>(plan.layers == 1, "a layer runs plans of one layer, found {}", plan.layers);
  const int64_t dense_bytes = layer.pending_.view().bytes();
  const int64_t expert_bytes = layer.expert_->gradients().bytes();
  for (const Gradient& g : plan.gradients)
    require_equal(g.bytes, g.experts ? expert_bytes : dense_bytes, "the plan's gradient bytes");
  for (const Task& task : plan.tasks()) {
    names_.push_back(task.name());
    PhasePart& p = part(task.phase);
    p.copies |= task.kind == TaskKind::copy;
    if (task.kind == TaskKind::expert && p.first_expert < 0) p.first_expert = task.id;
  }
  require<WrongResult>(part(Phase::forward).first_expert >= 0 && part(Phase::backward).first_expert >= 0,
                       "the plan lacks a phase, expected forward and backward");
  equal_ = plan.shape.layer.capacity_factor || pads_to_largest_load(plan.shape);
  const auto groups_held = static_cast<size_t>(rank().held_groups());
  const auto experts = static_cast<size_t>(rank().experts.total);
  of_ranks_.resize(static_cast<size_t>(rank().shape.parallel.ranks()) * groups_held * experts);
  counts_.members.resize(static_cast<size_t>(layer.comms_.of(GroupKind::ep_esp).size()) * groups_held * experts);
  counts_.gated.resize(static_cast<size_t>(rank().groups()) * experts);
  for (PhasePart& p : parts_) p.layouts.put_on(math().memory());
}

PhaseBuffers& LayerBinding::buffers(Phase phase) const {
  return phase == Phase::forward ? layer_.buffers_.forward : layer_.buffers_.backward;
}

// Every lane is idle.
void LayerBinding::begin_pass() {
  std::swap(layer_.fresh_, layer_.pending_);
  layer_.experts_summed_ =
      std::ranges::any_of(plan_.tasks(), [](const Task& t) { return t.kind == TaskKind::expert_gradient; });
  fit();
}

void LayerBinding::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.id == 0) begin_pass();
  if (task.group != GroupKind::none) return exchange(task, {stream, pace, names_[static_cast<size_t>(task.id)]});
  const Task* own = &plan_.tasks()[static_cast<size_t>(task.id)];
  stream.launch([this, own](void* native) {
    math().use(native);
    compute(*own);
  });
}

void LayerBinding::settle(const Task& task, Stream& stream) {
  if (task.kind == TaskKind::gate && task.phase == Phase::forward) agree(stream);
}

void LayerBinding::compute(const Task& task) {
  switch (task.kind) {
    case TaskKind::attention:
      return attention(task.phase);
    case TaskKind::gate:
      return gate(task.phase);
    case TaskKind::order:
      return order(task.phase);
    case TaskKind::i_order:
      return i_order(task.phase);
    case TaskKind::copy:
      return copy(task);
    case TaskKind::expert:
      return expert(task);
    case TaskKind::sum:
      return sum(task);
    case TaskKind::home_copy:
      return lay_out(task);
    default:
      throw WrongResult(task.name() + ": a computation that the layer does not know");
  }
}

// The dense part --------------------------------------------------------------------------------------------------

// The residual goes into this rank's part of the sum over MP, for its own tokens: so each token's is added once.
void LayerBinding::attention(Phase phase) {
  LayerBuffers& b = layer_.buffers_;
  const bool forward = phase == Phase::forward;
  const TensorView in = b.forward.mp_input, read = layer_.norm1_ ? b.normed_input : in;
  const TensorView from = forward ? in : b.backward.mp_partial,
                   to = forward ? b.forward.mp_partial : b.backward.mp_input;
  if (forward) {
    if (layer_.norm1_) layer_.norm1_->forward(in, read);
    layer_.attention_->forward(read, to);
  } else {
    layer_.attention_->backward(read, from, to, layer_.fresh_);
    if (layer_.norm1_) layer_.norm1_->backward(in, to);
  }
  const int64_t m = rank().model_dim(), own = rank().tokens.count;
  if (rank().shape.layer.residual) math().add(from.part(own_row() * m, {own, m}), to.part(own_row() * m, {own, m}));
}

void LayerBinding::gate(Phase phase) {
  LayerBuffers& b = layer_.buffers_;
  if (phase == Phase::forward) {
    begin_moe(phase);
    if (layer_.norm2_) layer_.norm2_->forward(b.forward.gate_input, b.normed);
    return layer_.gate_->forward(b.normed, layer_.routing_);
  }
  const double share = 1.0 / rank().gate_copies();
  // Where several ranks gate a token each has all of d_weight, but of d_fill its own shard of the experts' part.
  if (rank().gate_copies() > 1) math().scale(layer_.d_weight_, share);
  const TensorView d = b.backward.gate_input;
  layer_.gate_->backward({b.normed, layer_.routing_, layer_.d_weight_, layer_.d_fill_, d, share});
  if (layer_.norm2_) layer_.norm2_->backward(b.forward.gate_input, d);
  if (rank().shape.layer.residual) {
    const TensorView all = moe_gradient();
    const int64_t m = rank().model_dim(), counted = all.size(0) / rank().gate_copies();
    const int64_t first = rank().gate_copies() > 1 ? rank().esp * counted : 0;
    math().add(all.part(first * m, {counted, m}), d.part(first * m, {counted, m}));
  }
  end_moe(phase);
}

void LayerBinding::order(Phase phase) {
  LayerBuffers& b = layer_.buffers_;
  if (phase == Phase::forward)
    return layer_.order_->order(layer_.routing_, b.normed, {b.forward.home, part(phase).layouts.home});
  layer_.order_->order_backward(layer_.routing_, b.normed, home_rows(phase), b.backward.gate_input, layer_.d_fill_);
}

void LayerBinding::i_order(Phase phase) {
  LayerBuffers& b = layer_.buffers_;
  if (phase == Phase::backward) {
    begin_moe(phase);
    return layer_.order_->i_order_backward(layer_.routing_, moe_gradient(), home_rows(Phase::forward),
                                           {b.backward.home, part(phase).layouts.home}, layer_.d_weight_);
  }
  layer_.order_->i_order(layer_.routing_, home_rows(phase), b.forward.moe_output);
  if (rank().shape.layer.residual) math().add(b.forward.gate_input, b.forward.moe_output);
  end_moe(phase);
}

RowsView LayerBinding::home_rows(Phase phase) {
  const PhaseBuffers& b = buffers(phase);
  const PhaseLayouts& l = part(phase).layouts;
  if (part(phase).cuts.lays_out) return {b.laid_out, l.laid_out};
  return l.gathers_home() ? RowsView{b.wide, l.wide} : RowsView{b.home, l.home_back};
}

void LayerBinding::exchange_dense(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const bool forward = task.phase == Phase::forward;
  Communicator& comm = layer_.comms_.of(task.group);
  const int64_t own = rank().tokens.count * rank().model_dim(), held = b.input.elements();
  const DType dtype = rank().dtype();
  switch (task.kind) {
    case TaskKind::mp_allgather: {
      if (rank().flow == Flow::fused) {  // in place
        const TensorView whole = forward ? b.output : b.hidden;
        return comm.allgather(whole.at(rank().mp * own), whole.data(), own * bytes_of(dtype), call);
      }
      const TensorView from = forward ? b.input : b.hidden, to = forward ? b.mp_input : b.mp_partial;
      return comm.allgather(from.data(), to.data(), from.bytes(), call);
    }
    case TaskKind::mp_reducescatter: {
      const TensorView from = forward ? b.mp_partial : b.mp_input, to = forward ? b.hidden : b.input;
      return comm.reducescatter(from.data(), to.data(), own, dtype, call);
    }
    case TaskKind::mp_allreduce: {
      const TensorView whole = forward ? b.mp_partial : b.mp_input;
      return comm.allreduce(whole.data(), whole.elements(), dtype, call);
    }
    case TaskKind::tokens_allgather: {
      const TensorView from = forward ? b.hidden : b.output, to = forward ? b.gate_input : b.moe_output;
      return comm.allgather(from.data(), to.data(), held * bytes_of(dtype), call);
    }
    default:  // tokens_reducescatter
      return comm.reducescatter(b.gate_input.data(), b.hidden.data(), held, dtype, call);
  }
}

// The MoE part ----------------------------------------------------------------------------------------------------

void LayerBinding::copy(const Task& task) {
  PhasePart& p = part(task.phase);
  const LayerBuffers& b = layer_.buffers_;
  const Rows rows = p.layouts.gathered.chunk(task.chunk);
  p.rows.of_chunk(p.layouts.gathered, rows, p.at);
  layer_.device_.unpack(p.layouts.gathered, rows, buffers(task.phase).gathered,
                        task.phase == Phase::forward ? b.expert_input : b.rows_in, p.at);
}

void LayerBinding::expert(const Task& task) {
  PhasePart& p = part(task.phase);
  const LayerBuffers& b = layer_.buffers_;
  const PhaseBuffers& wire = buffers(task.phase);
  const Rows rows = chunk_rows(rank().rows, task.chunks, task.chunk);
  p.rows.of_chunk(p.layouts.gathered, rows, p.at);
  int64_t packed = 0;
  for (size_t e = 0; e < p.at.size(); ++e) {
    p.packed[e] = {packed, packed + p.at[e].count()};
    packed = p.packed[e].end;
  }
  const TensorView in = b.rows_in.part(0, {packed, rank().model_dim()}),
                   out = b.rows_out.part(0, {packed, rank().model_dim()});
  if (task.phase == Phase::forward) {
    if (!p.copies) layer_.device_.unpack(p.layouts.gathered, rows, wire.gathered, b.expert_input, p.at);
    layer_.expert_->forward(b.expert_input, p.at, out);
  } else {
    if (!p.copies) layer_.device_.unpack(p.layouts.gathered, rows, wire.gathered, in, p.packed);
    layer_.expert_->backward(b.expert_input, p.at, in, out, task.id == p.first_expert);
  }
  layer_.device_.pack(p.layouts.gathered_back, rows, out, p.packed, wire.gathered);
}

void LayerBinding::lay_out(const Task& task) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  const Rows rows = l.wide.chunk(task.chunk);
  const int64_t m = rank().model_dim();
  for (int group = 0; group < l.wide.streams(); ++group)
    for (int64_t e = 0; e < l.wide.experts(); ++e) {
      const Rows of = l.wide.rows_of(group, e, rows);
      if (of.count() == 0) continue;
      const int64_t size = of.count() * m;
      math().assign(b.wide.part(l.wide.offset(group, e, of.begin), {size}),
                    b.laid_out.part(l.laid_out.offset(group, e, of.begin), {size}));
    }
}

}  // namespace moe
