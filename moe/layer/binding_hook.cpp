// Where a layer calls its hook (hooks/hook.h).
#include <numeric>

#include "moe/layer/binding.h"

namespace moe {

TensorView LayerBinding::moe_gradient() const {
  return layer_.hook_ ? layer_.hooked_.view() : layer_.buffers_.backward.moe_output;
}

void LayerBinding::begin_moe(Phase phase) {
  if (!layer_.hook_) return;
  if (phase == Phase::forward) return layer_.hook_->before_moe_start(phase, layer_.buffers_.forward.gate_input);
  math().assign(layer_.buffers_.backward.moe_output, layer_.hooked_);  // dY stays what the loss gave
  layer_.hook_->before_moe_start(phase, layer_.hooked_);
}

void LayerBinding::end_moe(Phase phase) {
  if (!layer_.hook_) return;
  const bool forward = phase == Phase::forward;
  layer_.hook_->before_moe_end(phase,
                               forward ? layer_.buffers_.forward.moe_output : layer_.buffers_.backward.gate_input);
}

LayerBinding::Side LayerBinding::on_wire(const Side& rows, TensorView wire) const {
  Side side{wire.as<std::byte>(), rows.bytes, rows.only_some};
  for (int64_t& bytes : side.bytes) bytes = bytes / bytes_of(rank().dtype()) * bytes_of(wire.dtype());
  return side;
}

void LayerBinding::swap(const Task& task, Side send, Side receive, CommCall call) {
  if (!layer_.hook_) return swap(task.group, std::move(send), std::move(receive), call);
  const int64_t m = rank().model_dim();
  const auto rows_of = [&](const Side& side) {
    const int64_t elements = std::reduce(side.bytes.begin(), side.bytes.end()) / bytes_of(rank().dtype());
    return TensorView(side.data, {elements / m, m}, rank().dtype());
  };
  const bool converts = wire_type(rank().shape.layer) != rank().dtype();
  const auto wire_of = [&](TensorView rows, TensorView wire) {
    return converts ? wire.part(0, {rows.size(0), m}) : rows;
  };
  const TensorView out = rows_of(send), in = rows_of(receive);
  const TensorView wire_out = wire_of(out, layer_.buffers_.wire_out), wire_in = wire_of(in, layer_.buffers_.wire_in);
  Hook& hook = *layer_.hook_;
  const Phase phase = task.phase;
  const bool dispatches = task.kind == TaskKind::dispatch;
  call.stream.launch([=, this, &hook](void* native) {
    math().use(native);
    dispatches ? hook.before_dispatch(phase, out, wire_out) : hook.before_combine(phase, out, wire_out);
  });
  swap(task.group, on_wire(send, wire_out), on_wire(receive, wire_in), call);
  call.stream.launch([=, this, &hook](void* native) {
    math().use(native);
    dispatches ? hook.after_dispatch(phase, wire_in, in) : hook.after_combine(phase, wire_in, in);
  });
}

}  // namespace moe
