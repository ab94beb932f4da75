#include "moe/layer/moe_layer.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/layer/gradient_sums.h"
#include "moe/shape/volumes.h"

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
  add(parts.output_norm, shape().stage_copies() * shape().gate_copies());  // each rank has all of this gradient
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
    Communicator& comm = state_.comms.communicator(stage ? GroupKind::none : GroupKind::edp);
    const std::string_view name = stage ? "gradients of gate and norms over the stage" : "experts' gradients over EDP";
    sum_gradient(p, comm, stage || !state_.experts_summed, state_.math(), {stream, {}, name});
  }
}

void MoeLayer::finish_step(Stream& stream) {
  state_.gradients.begin_pass();
  Communicator& dp = state_.comms.communicator(GroupKind::dp);
  const TensorView made = state_.gradients.pending;
  if (dp.size() > 1)
    dp.allreduce(made.data(), made.elements(), made.dtype(), {stream, {}, "this pass's dense gradients over DP"});
  finish_gradients(stream);
}

LayerComms LayerComms::split(Communicator& world, const ParallelShape& parallel) {
  require_equal<BadInput>(world.size(), parallel.ranks(), "ranks of the communicator");
  LayerComms comms;
  for (int k = 0; k < kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    if (kind == GroupKind::world) continue;  // the group of all stages has no communicator here
    const int colour = kind == GroupKind::none ? 0 : members(parallel, kind, world.rank()).front();
    comms.by_kind_[k] = world.split(colour, world.rank());
  }
  return comms;
}

LayerComms CommsCache::find_or_split(Communicator& world, const ParallelShape& parallel) {
  const auto found = std::ranges::find(entries_, parallel, [](const auto& each) { return each.first; });
  if (found != entries_.end()) return found->second;
  return entries_.emplace_back(parallel, LayerComms::split(world, parallel)).second;
}

namespace {

std::unique_ptr<Dispatcher> dispatcher_of(const RankShape& rank, const LayerComms& comms, MemorySpace& memory) {
  const LayerShape& layer = rank.shape.layer;
  const bool padded = pads_to_largest_load(rank.shape);
  const int64_t most = padded ? padded_rows(rank.shape, rank.tokens.count) : rank.rows;
  const int64_t rows = most * (rank.traits().sends_all_groups() ? rank.groups() : 1);
  return make_dispatcher(layer.dispatcher, {comms.communicator(GroupKind::ep), rank.shape.parallel.ranks_per_node,
                                            rank.rank, padded || layer.capacity_factor.has_value(),
                                            rows * layer.experts * layer.model_dim * bytes_of(layer.dtype), memory});
}

// Makes the shared expert: one expert, sharded over the MP ranks. A dense layer's feed-forward is one too.
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
  const bool post = is_post_norm(rank.shape.layer.norm);
  require<Unsupported>(!post || rank.shared.count == 0 || rank.gate_copies() == 1,
                       "norm post-layernorm with a shared expert: found ranks that gate the tokens of {} MP groups, "
                       "expected one, because a rank has the shared expert's output for its own group only",
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
                       LayerDevice& layer_device, const SharedLayerTensors& shared)
    : shape((require_runnable_fields(rank.shape.layer), layer_device.require_runs(rank.shape.layer), rank)),
      seed(layer_seed),
      comms(std::move(layer_comms)),
      device(layer_device),
      pass(shared.memory),
      buffers(shape, pass, memory(), shared.before, shared.last),
      routing(shape.is_dense() ? Routing() : make_routing(shape, memory())),
      parts(parts_of({.rank = shape,
                      .seed = seed,
                      .math = math(),
                      .weights = shared.weights,
                      .memory = pass,
                      .parts_before = shared.parts_before},
                     comms, device)) {
  const int64_t dense = gradient_bytes(shape.shape) / bytes_of(shape.dtype());
  const PartSetup setup{shape, seed, math(), shared.weights};
  gradients.fresh = setup.weight(kDenseGradients, {dense}, shape.dtype());
  gradients.pending = setup.weight(kDenseGradientsBefore, {dense}, shape.dtype());
  if (!shape.is_dense()) {
    expert_gradients =
        setup.weight(kExpertGradients, {expert_gradient_bytes(shape.shape) / bytes_of(shape.dtype())}, shape.dtype());
    const DType weights = routing.weight.view().dtype();
    const auto make = [&](std::string_view name) {
      return pass.store(Lifetime::moe_backward).tensor(name, {routing.tokens, routing.choices}, weights, memory());
    };
    d_weight = make("gradient of weights");
    if (routing.mixes()) d_fill = make("gradient of fill");
    set_hook(make_hook(shape.shape.layer.hook, math()));
  }
  if (shared.before == nullptr) fill_input(buffers.forward.input, shape.held_tokens, seed, memory());
  if (shared.last) fill_output_gradient(buffers.backward.output, shape.held_tokens, seed, memory());
}

TensorView LayerState::shared_gradients(TensorView dense) const {
  const int64_t first = attention_parameters(shape.shape) + attention_biases(shape.shape);
  return dense.part(first, {dense.elements() - first});
}

void LayerState::set_hook(std::unique_ptr<Hook> hook) {
  parts.hook = std::move(hook);
  if (parts.hook)
    hooked = pass.store(Lifetime::moe_backward)
                 .tensor("hooked", {shape.gated_tokens(), shape.model_dim()}, shape.dtype(), memory());
}

namespace {

double ratio_or_zero(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Indices of the first numbers of load_on, for one rank or summed over ranks. After them come, by expert, the pairs
// that want it.
enum Count : size_t { pairs, dropped, filled, max_filled, kCounts };

}  // namespace

std::vector<double> load_on(const MoeLayer& rank) {
  const Routing& r = rank.routing();
  const int64_t own_pairs = r.group_tokens * r.choices, group = rank.shape().own_group;
  std::vector<double> load(kCounts + static_cast<size_t>(r.experts));
  for (int64_t p = group * own_pairs; p < (group + 1) * own_pairs; ++p) {
    const int32_t expert = r.expert[p];
    if (expert < 0) continue;  // Expert Choice: no expert took the token
    ++load[kCounts + expert], ++load[pairs];
    load[dropped] += r.row[p] == Routing::kDropped;
  }
  for (int64_t e = group * r.experts; e < (group + 1) * r.experts; ++e) {
    const auto rows = static_cast<double>(r.filled[e]);
    load[filled] += rows;
    load[max_filled] = std::max(load[max_filled], rows);
  }
  return load;
}

RoutingLoad load_of(const RankShape& any, std::span<const std::vector<double>> ranks) {
  std::vector<double> sum(kCounts + static_cast<size_t>(any.experts.total));
  double most = 0;
  for (const std::vector<double>& rank : ranks) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rank.at(i);
    most = std::max(most, rank[max_filled]);
  }
  double sent = sum[filled];  // unequal blocks
  const auto blocks = static_cast<double>(ranks.size()) * static_cast<double>(any.experts.total);
  if (any.shape.layer.capacity_factor)
    sent = blocks * static_cast<double>(any.rows);
  else if (pads_to_largest_load(any.shape))
    sent = blocks * static_cast<double>(padded_rows(any.shape, static_cast<int64_t>(most)));
  RoutingLoad load;
  load.pairs = static_cast<int64_t>(sum[pairs]);
  load.dropped = static_cast<int64_t>(sum[dropped]);
  load.drop_rate = ratio_or_zero(sum[dropped], sum[pairs]);
  load.max_load = *std::max_element(sum.begin() + kCounts, sum.end());
  load.mean_load = sum[pairs] / static_cast<double>(any.experts.total);
  load.imbalance = ratio_or_zero(load.max_load, load.mean_load);
  load.padding = ratio_or_zero(sent - sum[filled], sent);
  return load;
}

RoutingLoad load_of(std::span<MoeLayer* const> ranks) {
  std::vector<std::vector<double>> loads;
  for (const MoeLayer* rank : ranks) loads.push_back(load_on(*rank));
  return load_of(ranks.front()->shape(), loads);
}

}  // namespace moe
