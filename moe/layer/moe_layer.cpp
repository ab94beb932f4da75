#include "moe/layer/moe_layer.h"

#include "moe/plan/volumes.h"

namespace moe {
namespace {

std::unique_ptr<Dispatcher> dispatcher_of(const RankShape& rank, const LayerComms& comms) {
  const LayerShape& layer = rank.shape.layer;
  const bool padded = pads_to_largest_load(rank.shape);
  const int64_t most = padded ? padded_rows(rank.shape, rank.tokens.count) : rank.rows;
  const int64_t rows = most * (rank.sends_all_groups() ? rank.groups() : 1);
  return make_dispatcher(layer.dispatcher, {comms.of(GroupKind::ep), rank.shape.parallel.ranks_per_node, rank.rank,
                                            padded || layer.capacity_factor.has_value(),
                                            rows * layer.experts * layer.model_dim * bytes_of(layer.dtype)});
}

}  // namespace

MoeLayer::MoeLayer(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device)
    : shape_((device.require_runs(rank.shape.layer), rank)),
      seed_(seed),
      comms_(std::move(comms)),
      device_(device),
      buffers_(shape_, memory()),
      routing_(make_routing(shape_, memory())),
      attention_(make_attention({shape_, seed, device.math()})),
      norm1_(make_norm(shape_, kNormGain1, seed, device.math())),
      norm2_(make_norm(shape_, kNormGain2, seed, device.math())),
      gate_(device.make_gate({shape_, seed, device.math()})),
      order_(device.make_order(shape_)),
      dispatcher_(dispatcher_of(shape_, comms_)),
      expert_(make_expert(name_of(rank.shape.layer.ffn), {shape_, seed, device.math()})) {
  const int64_t dense = gradient_bytes(rank.shape) / bytes_of(rank.dtype());
  fresh_ = Tensor({dense}, rank.dtype(), memory());
  pending_ = Tensor({dense}, rank.dtype(), memory());
  const DType weights = routing_.weight.view().dtype();
  d_weight_ = Tensor({routing_.tokens, routing_.choices}, weights, memory());
  if (routing_.mixes()) d_fill_ = Tensor({routing_.tokens, routing_.choices}, weights);
  set_hook(make_hook(rank.shape.layer.hook, device.math()));
  fill_input(input(), shape_.held, seed_, memory());
  fill_output_gradient(output_gradient(), shape_.held, seed_, memory());
}

void MoeLayer::set_hook(std::unique_ptr<Hook> hook) {
  hook_ = std::move(hook);
  if (hook_) hooked_ = Tensor({shape_.gated_tokens(), shape_.model_dim()}, shape_.dtype(), memory());
}

std::span<const int32_t> MoeLayer::own_choices() const {
  const int64_t pairs = routing().group_tokens * routing_.choices;
  return std::span(routing_.expert).subspan(static_cast<size_t>(shape_.own_group * pairs), static_cast<size_t>(pairs));
}

std::vector<Parameter> MoeLayer::parameters() {
  std::vector<Parameter> all = attention_->parameters(pending_);
  if (norm1_) all.push_back(norm1_->gain(1));
  if (norm2_) all.push_back(norm2_->gain(shape_.stage_copies()));
  for (Parameter& p : gate_->parameters()) all.push_back(std::move(p)), all.back().copies = shape_.stage_copies();
  for (Parameter& p : expert_->parameters()) all.push_back(std::move(p)), all.back().copies = shape_.expert_copies();
  return all;
}

void MoeLayer::finish_gradients(Stream& stream) {
  for (const Parameter& p : parameters()) {
    if (p.summed_over == SummedOver::dp) continue;
    const bool stage = p.summed_over == SummedOver::stage;
    Communicator& comm = comms_.of(stage ? GroupKind::none : GroupKind::edp);
    const std::string_view name = stage ? "gradients of gate and norms over the stage" : "experts' gradients over EDP";
    if (comm.size() > 1 && (stage || !experts_summed_))
      comm.allreduce(p.gradient.data(), p.gradient.elements(), p.gradient.dtype(), {stream, {}, name});
    if (p.copies == 1) continue;
    stream.launch([this, gradient = p.gradient, by = p.copies](void* native) {
      device_.math().use(native);
      device_.math().scale(gradient, 1.0 / by);
    });
  }
}

void MoeLayer::finish_step(Stream& stream) {
  std::swap(fresh_, pending_);
  Communicator& dp = comms_.of(GroupKind::dp);
  const TensorView made = pending_;
  if (dp.size() > 1)
    dp.allreduce(made.data(), made.elements(), made.dtype(), {stream, {}, "this pass's dense gradients over DP"});
  finish_gradients(stream);
}

}  // namespace moe
