#include "moe/layer/binding/wire_hooks.h"

#include <numeric>

namespace moe::layer {

TensorView WireHooks::moe_gradient() const {
  if (layer_.parts.output_norm) return layer_.buffers.d_summed;
  return any() ? layer_.hooked : layer_.buffers.backward.moe_output;
}

void WireHooks::begin_moe(Phase phase) const {
  const LayerBuffers& b = layer_.buffers;
  if (any() && phase == Phase::forward) return layer_.parts.hook->before_moe_start(phase, b.forward.gate_input);
  if (any()) {
    layer_.math().assign(b.backward.moe_output, layer_.hooked);  // dY stays what the loss gave
    layer_.parts.hook->before_moe_start(phase, layer_.hooked);
  }
  if (phase == Phase::forward || !layer_.parts.output_norm) return;
  layer_.math().assign(any() ? layer_.hooked : b.backward.moe_output, b.d_summed);
  layer_.parts.output_norm->backward(b.summed, b.d_summed, layer_.into.output);
}

void WireHooks::end_moe(Phase phase) const {
  if (!any()) return;
  const LayerBuffers& b = layer_.buffers;
  layer_.parts.hook->before_moe_end(phase, phase == Phase::forward ? b.forward.moe_output : b.backward.gate_input);
}

WireHooks::Converted WireHooks::converted(const Side& side, TensorView buffer) const {
  const DType own = layer_.shape.dtype();
  const int64_t m = layer_.shape.model_dim();
  const int64_t count = std::reduce(side.bytes.begin(), side.bytes.end()) / bytes_of(own) / m;
  const TensorView rows(side.data, {count, m}, own);
  return {rows, wire_type(layer_.shape.shape.layer) == own ? rows : buffer.part(0, {count, m})};
}

Side WireHooks::on_wire(const Side& rows, TensorView wire) const {
  Side side{wire.as<std::byte>(), rows.bytes, rows.only_some};
  for (int64_t& bytes : side.bytes) bytes = bytes / bytes_of(layer_.shape.dtype()) * bytes_of(wire.dtype());
  return side;
}

Sides WireHooks::before_exchange(const Task& task, const Sides& rows, const CommCall& call) const {
  const PhaseBuffers& b = layer_.buffers.of(task.phase);
  const Converted out = converted(rows.send, b.wire_out), in = converted(rows.receive, b.wire_in);
  call.stream.launch([this, out, phase = task.phase, dispatches = task.kind == TaskKind::dispatch](void* native) {
    layer_.math().use(native);
    Hook& hook = *layer_.parts.hook;
    dispatches ? hook.before_dispatch(phase, out.rows, out.wire) : hook.before_combine(phase, out.rows, out.wire);
  });
  return {on_wire(rows.send, out.wire), on_wire(rows.receive, in.wire)};
}

void WireHooks::after_exchange(const Task& task, const Sides& rows, const CommCall& call) const {
  const Converted in = converted(rows.receive, layer_.buffers.of(task.phase).wire_in);
  call.stream.launch([this, in, phase = task.phase, dispatches = task.kind == TaskKind::dispatch](void* native) {
    layer_.math().use(native);
    Hook& hook = *layer_.parts.hook;
    dispatches ? hook.after_dispatch(phase, in.wire, in.rows) : hook.after_combine(phase, in.wire, in.rows);
  });
}

}  // namespace moe::layer
