#include "moe/layer/moe_layer.h"

#include "moe/layer/gradient_sums.h"

namespace moe {

std::span<const int32_t> MoeLayer::own_choices() const {
  if (shape().is_dense()) return {};
  const Routing& r = routing();
  const int64_t pairs = r.group_tokens * r.choices;
  return std::span(r.expert).subspan(static_cast<size_t>(shape().own_group * pairs), static_cast<size_t>(pairs));
}

std::vector<Parameter> MoeLayer::parameters() {
  const LayerParts& parts = state_.parts;
  std::vector<Parameter> all = parts.attention->parameters(state_.gradients.pending);
  const auto add = [&](const std::unique_ptr<RowNorm>& norm, int copies) {
    if (norm == nullptr) return;
    for (Parameter& p : norm->parameters(copies)) all.push_back(std::move(p));
  };
  add(parts.attention_norm, 1);
  add(parts.gate_norm, shape().is_dense() ? 1 : shape().stage_copies());
  add(parts.output_norm, shape().stage_copies() * shape().gate_copies());  // each of these has all of its gradient
  if (parts.gate)
    for (Parameter& p : parts.gate->parameters())
      all.push_back(std::move(p)), all.back().copies = shape().stage_copies();
  if (parts.expert)
    for (Parameter& p : parts.expert->parameters(state_.expert_gradients))
      all.push_back(std::move(p)), all.back().copies = shape().expert_copies();
  if (parts.shared)
    for (Parameter& p : parts.shared->parameters(state_.shared_gradients(state_.gradients.pending)))
      all.push_back(std::move(p)), all.back().summed_over = SummedOver::dp;
  return all;
}

void MoeLayer::finish_gradients(Stream& stream) {
  for (const Parameter& p : parameters()) {
    if (p.summed_over == SummedOver::dp) continue;
    const bool stage = p.summed_over == SummedOver::stage;
    Communicator& comm = state_.comms.of(stage ? GroupKind::none : GroupKind::edp);
    const std::string_view name = stage ? "gradients of gate and norms over the stage" : "experts' gradients over EDP";
    sum_gradient(p, comm, stage || !state_.experts_summed, state_.math(), {stream, {}, name});
  }
}

void MoeLayer::finish_step(Stream& stream) {
  state_.gradients.begin_pass();
  Communicator& dp = state_.comms.of(GroupKind::dp);
  const TensorView made = state_.gradients.pending;
  if (dp.size() > 1)
    dp.allreduce(made.data(), made.elements(), made.dtype(), {stream, {}, "this pass's dense gradients over DP"});
  finish_gradients(stream);
}

}  // namespace moe
