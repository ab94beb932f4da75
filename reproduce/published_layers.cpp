// Megatron-Core's MoE layer on eight H100, from the presets' rows.
#include <algorithm>

#include "moe/cost/pricer.h"
#include "moe/plan/volumes.h"
#include "reproduce/published.h"

namespace moe::reproduce {
namespace {

LayerCase case_of(const PublishedLayer& layer) {
  LayerShape shape;
  shape.batch = 1;
  shape.seq = layer.tokens_a_rank;
  shape.model_dim = layer.model_dim;
  shape.hidden = layer.hidden;
  shape.heads = 8;  // the layer has no attention
  shape.experts = layer.experts;
  shape.top_k = layer.top_k;
  shape.capacity_factor = 1;  // routing is even
  shape.ffn = Ffn::mixtral;
  shape.dtype = DType::bfloat16;
  return complete(shape, {.nodes = 1, .ranks_per_node = kNodeRanks}, Rounding::exact);
}

// Returns the share of its k copies that DeepEP sends for this layer, over that of the layer it was measured with.
double more_sent(const PublishedLayer& layer) {
  const PublishedExchange measured = published_exchanges().front();
  const double theirs = places_reached(measured.experts, kNodeRanks, kNodeRanks, measured.top_k) / measured.top_k;
  return places_reached(layer.experts, kNodeRanks, layer.ranks_of_a_token, layer.top_k) / layer.top_k / theirs;
}

}  // namespace

std::string_view name_of(LayerPrice price) {
  return price == LayerPrice::preset ? "preset" : price == LayerPrice::gemms ? "experts as GEMMs" : "ranks reached";
}

std::string preset_of(const PublishedLayer& layer) {
  return layer.dispatcher == "deepep" ? "h100-deepep-1-node" : "h100-8";
}

LayerParts predicted_parts(const PublishedLayer& layer, const Profile& preset, Phase phase, LayerPrice price) {
  Profile profile = preset;
  if (price == LayerPrice::gemms)
    std::erase_if(profile.compute, [](const ComputeRow& row) { return row.op == Op::expert; });
  const LayerCase shape = case_of(layer);
  const LayerPricer pricer(profile, shape);
  const double rows = capacity_exact(shape), sent = rows * (price == LayerPrice::ranks_reached ? more_sent(layer) : 1);
  LayerParts parts;
  parts.router = pricer.dense_seconds(TaskKind::gate, phase);
  parts.order = pricer.dense_seconds(TaskKind::order, phase) + pricer.dense_seconds(TaskKind::i_order, phase);
  parts.exchange =
      pricer.chunk_seconds(TaskKind::dispatch, phase, sent) + pricer.chunk_seconds(TaskKind::combine, phase, sent);
  parts.experts = pricer.chunk_seconds(TaskKind::expert, phase, rows);
  return parts;
}

double shared_expert_s(const PublishedLayer& layer, const Profile& profile, Phase phase) {
  if (layer.shared_hidden == 0) return 0;
  const LayerCase shape = case_of(layer);
  Work work{.op = Op::gemm, .gemms = gemms_of(shape.layer.ffn) * (phase == Phase::backward ? 2 : 1)};
  work.flops = work.gemms * kFlopsPerMac * layer.tokens_a_rank * static_cast<double>(layer.model_dim) *
               static_cast<double>(layer.shared_hidden);
  return LayerPricer(profile, shape).gemm_seconds(work);
}

Comparison published_layer_times() {
  Comparison c{.caption = "Megatron-Core's MoE layer on 8 H100, EP 8, bf16",
               .label_names = {"model", "dispatcher", "phase"},
               .quantity = kMilliseconds};
  for (const PublishedLayer& layer : published_layers()) {
    const Profile preset = find_profile(preset_of(layer));
    for (const Phase phase : {Phase::forward, Phase::backward})
      for (const LayerPrice price : {LayerPrice::preset, LayerPrice::gemms, LayerPrice::ranks_reached})
        if (price != LayerPrice::ranks_reached || layer.dispatcher == "deepep")
          c.figures.push_back({{layer.model, layer.dispatcher, std::string(name_of(phase))},
                               std::string(name_of(price)),
                               phase == Phase::forward ? layer.forward_s : layer.backward_s,
                               predicted_parts(layer, preset, phase, price).sum()});
  }
  return c;
}

}  // namespace moe::reproduce
