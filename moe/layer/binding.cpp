#include "moe/layer/binding.h"

namespace moe {
namespace {

std::byte* at(TensorView t, int64_t element) { return t.as<std::byte>() + element * bytes_of(t.dtype()); }

}  // namespace

void require_runnable(const Plan& plan) {
  require<Unsupported>(plan.structure->flow == Flow::sharded, "a layer runs the sharded flow, found {}",
                       name_of(plan.structure->flow));
  require<Unsupported>(plan.layers == 1, "a layer runs plans of one layer, found {}", plan.layers);
  for (const Task& task : plan.tasks()) {
    const int degree = task.phase == Phase::forward ? plan.degree_forward : plan.degree_backward;
    require<Unsupported>(!is_chunked(task.kind) || task.chunks == degree,
                         "a layer cuts every stage alike, found {} and degree {}", task.name(), degree);
    require<Unsupported>(task.kind != TaskKind::expert_gradient,
                         "a layer sums its experts' gradients after the pass, found {}", task.name());
  }
}

LayerBinding::LayerBinding(MoeLayer& layer, const Plan& plan)
    : layer_(layer),
      plan_(plan),
      forward_(layer.shape(), plan.degree_forward),
      backward_(layer.shape(), plan.degree_backward) {
  require<WrongResult>(plan.shape == layer.shape().shape, "the plan is for {} and another parallel shape or rounding",
                       describe(plan.shape.layer));
  require_equal(plan.rows, layer.shape().rows, "the plan's T_rank");
  require_runnable(plan);
  const int64_t dense_bytes = layer.pending_.view().bytes();
  for (const Gradient& g : plan.gradients) require_equal(g.bytes, dense_bytes, "the plan's gradient bytes");
  for (const Task& task : plan.tasks()) {
    names_.push_back(task.name());
    if (task.kind == TaskKind::expert && task.phase == Phase::backward && first_expert_ < 0) first_expert_ = task.id;
  }
  require<WrongResult>(first_expert_ >= 0 && plan.tasks().front().phase == Phase::forward,
                       "the plan lacks a phase, expected forward and backward");
}

PhaseBuffers& LayerBinding::buffers(Phase phase) const {
  return phase == Phase::forward ? layer_.buffers_.forward : layer_.buffers_.backward;
}

void LayerBinding::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.id == 0) std::swap(layer_.fresh_, layer_.pending_);  // a pass begins; every lane is idle
  if (task.group != GroupKind::none) return exchange(task, {stream, pace, names_[static_cast<size_t>(task.id)]});
  const Task* own = &plan_.tasks()[static_cast<size_t>(task.id)];
  stream.launch([this, own](void*) { compute(*own); });
}

void LayerBinding::compute(const Task& task) {
  LayerBuffers& b = layer_.buffers_;
  PhaseBuffers& p = buffers(task.phase);
  const Routing& routing = layer_.routing_;
  if (task.kind == TaskKind::expert) return expert(task);
  if (task.phase == Phase::forward) {
    switch (task.kind) {
      case TaskKind::attention:
        return layer_.attention_->forward(p.dense_gathered, p.dense_partial);
      case TaskKind::gate:
        return layer_.gate_->forward(p.dense_out, layer_.routing_);
      case TaskKind::order:
        return layer_.order_->order(routing, p.dense_out, {p.at_home, forward_});
      case TaskKind::i_order:
        return layer_.order_->i_order(routing, {p.at_home, forward_}, b.output);
      default:
        break;
    }
  } else {
    switch (task.kind) {
      case TaskKind::i_order:
        return layer_.order_->i_order_backward(routing, b.d_output, {b.forward.at_home, forward_},
                                               {p.at_home, backward_}, b.d_weight);
      case TaskKind::order:
        return layer_.order_->order_backward(routing, {p.at_home, backward_}, p.dense_in);
      case TaskKind::gate:
        return layer_.gate_->backward(b.forward.dense_out, routing, b.d_weight, p.dense_in);
      case TaskKind::attention:
        return layer_.attention_->backward(b.forward.dense_gathered, p.dense_gathered, p.dense_partial, layer_.fresh_);
      default:
        break;
    }
  }
  throw WrongResult(task.name() + ": a computation that the layer does not know");
}

void LayerBinding::expert(const Task& task) {
  LayerBuffers& b = layer_.buffers_;
  const RankShape& shape = layer_.shape_;
  const Rows rows = layout(task.phase).rows(task.chunk), inside = expert_rows(shape, rows);
  const int64_t offset = layout(task.phase).chunk_offset(task.chunk) * shape.shape.parallel.esp;
  const int64_t elements = layout(task.phase).chunk_elements(task.chunk) * shape.shape.parallel.esp;
  const TensorView gathered = buffers(task.phase).gathered.part(offset, {elements});
  const auto of_chunk = [&](TensorView whole) {
    return whole.part(0, {shape.experts.count, inside.count(), shape.model_dim()});
  };
  const TensorView in = of_chunk(b.rows_in), out = of_chunk(b.rows_out);
  if (task.phase == Phase::forward) {
    unpack_chunk(shape, rows, gathered, b.expert_input, inside.begin);
    layer_.expert_->forward(b.expert_input, inside, out);
  } else {
    unpack_chunk(shape, rows, gathered, in, 0);
    layer_.expert_->backward(b.expert_input, inside, in, out, task.id == first_expert_);
  }
  pack_chunk(shape, rows, out, 0, gathered);
}

void LayerBinding::exchange(const Task& task, CommCall call) {
  PhaseBuffers& p = buffers(task.phase);
  const WireLayout& wire = layout(task.phase);
  Communicator& comm = layer_.comms_.of(task.group);
  const DType dtype = layer_.shape_.dtype();
  const int64_t bytes = bytes_of(dtype), at_wire = wire.chunk_offset(task.chunk);
  const int64_t at_gathered = at_wire * layer_.shape_.shape.parallel.esp;
  switch (task.kind) {
    case TaskKind::mp_allgather:
      return comm.allgather(p.dense_in.data(), p.dense_gathered.data(), p.dense_in.bytes(), call);
    case TaskKind::mp_reducescatter:
      return comm.reducescatter(p.dense_partial.data(), p.dense_out.data(), p.dense_out.elements(), dtype, call);
    case TaskKind::dispatch:
      return layer_.dispatcher_->exchange(at(p.at_home, at_wire), at(p.at_peer, at_wire),
                                          wire.block_elements(task.chunk) * bytes, call);
    case TaskKind::allgather:
      return comm.allgather(at(p.at_peer, at_wire), at(p.gathered, at_gathered),
                            wire.chunk_elements(task.chunk) * bytes, call);
    case TaskKind::reducescatter:
      return comm.reducescatter(at(p.gathered, at_gathered), at(p.at_peer, at_wire), wire.chunk_elements(task.chunk),
                                dtype, call);
    case TaskKind::combine:
      return layer_.dispatcher_->exchange(at(p.at_peer, at_wire), at(p.at_home, at_wire),
                                          wire.block_elements(task.chunk) * bytes, call);
    case TaskKind::gradient: {
      // Slices may end inside an element; cut alike on both sides, they still cover each element once.
      const GradientSlice& slice = plan_.slices[static_cast<size_t>(task.slice)];
      const int64_t begin = slice.begin / bytes, end = slice.end / bytes;
      return comm.allreduce(at(layer_.pending_, begin), end - begin, dtype, call);
    }
    default:
      throw WrongResult(task.name() + ": a collective that the layer does not know");
  }
}

}  // namespace moe
