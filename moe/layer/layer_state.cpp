#include "moe/layer/layer_state.h"

#include "moe/plan/volumes.h"

namespace moe {
namespace {

std::unique_ptr<Dispatcher> dispatcher_of(const RankShape& rank, const LayerComms& comms, MemorySpace& memory) {
  const LayerShape& layer = rank.shape.layer;
  const bool padded = pads_to_largest_load(rank.shape);
  const int64_t most = padded ? padded_rows(rank.shape, rank.tokens.count) : rank.rows;
  const int64_t rows = most * (rank.traits().sends_all_groups() ? rank.groups() : 1);
  return make_dispatcher(layer.dispatcher, {comms.of(GroupKind::ep), rank.shape.parallel.ranks_per_node, rank.rank,
                                            padded || layer.capacity_factor.has_value(),
                                            rows * layer.experts * layer.model_dim * bytes_of(layer.dtype), memory});
}

// Makes the shared expert: it is one expert, and its shards are the MP ranks'. A dense layer's feed-forward is one too.
std::unique_ptr<Expert> shared_of(const PartSetup& setup) {
  if (setup.rank.shared.count == 0) return nullptr;
  RankShape rank = setup.rank;
  rank.experts = {0, 1, 1};
  rank.hidden = rank.shared;
  std::unique_ptr<Expert> shared =
      make_expert(name_of(rank.shape.layer.ffn),
                  {rank, setup.seed, setup.math, setup.weights, setup.rank.is_dense() ? kFfn : kShared, setup.memory});
  shared->reserve(rank.mp_tokens());
  return shared;
}

LayerParts parts_of(const PartSetup& setup, const LayerComms& comms, LayerDevice& device) {
  const RankShape& rank = setup.rank;
  const bool post = is_post(rank.shape.layer.norm);
  require<Unsupported>(!post || rank.shared.count == 0 || rank.gate_copies() == 1,
                       "norm post-layernorm behind a shared expert: found ranks that gate the tokens of {} MP groups, "
                       "of which they know their own alone behind that expert",
                       rank.gate_copies());
  if (rank.is_dense()) {
    require<Unsupported>(!post, "norm post-layernorm: found a dense layer, expected experts in every layer");
    LayerParts parts;
    parts.attention = make_attention(setup);
    parts.attention_norm = make_norm(setup, kNormGain1);
    parts.gate_norm = make_norm(setup, kNormGain2);
    parts.shared = shared_of(setup);
    return parts;
  }
  return {.attention = make_attention(setup),
          .attention_norm = post ? nullptr : make_norm(setup, kNormGain1),
          .gate_norm = make_norm(setup, post ? kNormGain1 : kNormGain2),
          .output_norm = post ? make_norm(setup, kNormGain2) : nullptr,
          .gate = device.make_gate(setup),
          .order = device.make_order(setup.rank),
          .dispatcher = dispatcher_of(setup.rank, comms, setup.math.memory()),
          .expert = make_expert(name_of(setup.rank.shape.layer.ffn), setup),
          .shared = shared_of(setup),
          .hook = nullptr};
}

}  // namespace

LayerState::LayerState(const RankShape& rank, const LayerSeed& layer_seed, LayerComms layer_comms,
                       LayerDevice& layer_device, const LayerLinks& links)
    : shape((layer_device.require_runs(rank.shape.layer), rank)),
      seed(layer_seed),
      comms(std::move(layer_comms)),
      device(layer_device),
      pass(links.memory),
      buffers(shape, pass, memory(), links.before, links.last),
      routing(shape.is_dense() ? Routing() : make_routing(shape, memory())),
      parts(parts_of({.rank = shape, .seed = seed, .math = math(), .weights = links.weights, .memory = pass}, comms,
                     device)) {
  const int64_t dense = gradient_bytes(shape.shape) / bytes_of(shape.dtype());
  const PartSetup setup{shape, seed, math(), links.weights};
  gradients.fresh = setup.weight(kDenseGradients, {dense}, shape.dtype());
  gradients.pending = setup.weight(kDenseGradientsBefore, {dense}, shape.dtype());
  if (!shape.is_dense()) {
    expert_gradients =
        setup.weight(kExpertGradients, {expert_gradient_bytes(shape.shape) / bytes_of(shape.dtype())}, shape.dtype());
    const DType weights = routing.weight.view().dtype();
    const auto make = [&](std::string_view name) {
      return pass.of(Lifetime::moe_backward).tensor(name, {routing.tokens, routing.choices}, weights, memory());
    };
    d_weight = make("gradient of weights");
    if (routing.mixes()) d_fill = make("gradient of fill");
    set_hook(make_hook(shape.shape.layer.hook, math()));
  }
  if (links.before == nullptr) fill_input(buffers.forward.input, shape.held, seed, memory());
  if (links.last) fill_output_gradient(buffers.backward.output, shape.held, seed, memory());
}

TensorView LayerState::shared_gradients(TensorView dense) const {
  const int64_t first = attention_parameters(shape.shape) + attention_biases(shape.shape);
  return dense.part(first, {dense.elements() - first});
}

void LayerState::set_hook(std::unique_ptr<Hook> hook) {
  parts.hook = std::move(hook);
  if (parts.hook)
    hooked = pass.of(Lifetime::moe_backward)
                 .tensor("hooked", {shape.gated_tokens(), shape.model_dim()}, shape.dtype(), memory());
}

}  // namespace moe
