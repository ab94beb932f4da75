#include "moe/export/layer_json.h"

namespace moe {

Json layer_json(const LayerShape& l) {
  Json json{{"batch", l.batch},
            {"seq", l.seq},
            {"model_dim", l.model_dim},
            {"hidden", l.hidden},
            {"heads", l.heads},
            {"kv_heads", l.kv_heads},
            {"experts", l.experts},
            {"top_k", l.top_k},
            {"capacity_factor", nullptr},
            {"ffn", name_of(l.ffn)},
            {"dtype", name_of(l.dtype)},
            {"gate", l.gate},
            {"order", l.order},
            {"dispatcher", l.dispatcher},
            {"hook", l.hook},
            {"norm", name_of(l.norm)},
            {"residual", l.residual},
            {"aux_loss", l.aux_loss},
            {"z_loss", l.z_loss}};
  if (l.shared_hidden > 0) json["shared_hidden"] = l.shared_hidden;
  if (l.head_dim > 0) json["head_dim"] = l.head_dim;
  if (l.rope_theta > 0) json["rope_theta"] = l.rope_theta;
  if (!l.causal) json["causal"] = false;
  if (l.bias) json["bias"] = true;
  if (l.node_limit > 0) json["node_limit"] = l.node_limit;
  if (l.capacity_factor) json["capacity_factor"] = *l.capacity_factor;
  return json;
}

Json group_sizes(const ParallelShape& p) {
  Json json{{"nodes", p.nodes}, {"ranks_per_node", p.ranks_per_node},
            {"dp", p.dp},       {"mp", p.mp},
            {"ep", p.ep},       {"esp", p.esp},
            {"edp", p.edp},     {"pp", p.pp}};
  if (p.zero > 0) json["zero"] = p.zero;
  if (p.recompute != Recompute::none) json["recompute"] = name_of(p.recompute);
  return json;
}

LayerCase read_case(const TableReader& layer, const TableReader& groups) {
  for (const std::string_view key : {"batch", "seq", "model_dim", "hidden", "heads", "kv_heads", "experts", "top_k",
                                     "capacity_factor", "ffn", "dtype", "gate", "order", "dispatcher", "hook"})
    layer.value(key);
  for (const std::string_view key : {"dp", "mp", "ep", "esp", "pp"}) groups.value(key);
  LayerShape shape;
  read_layer_keys(layer, shape);
  ParallelShape p = read_parallel_keys(groups);
  const auto count = [&](std::string_view key, int most) {
    return static_cast<int>(groups.integer(key, {.least = 1, .most = static_cast<double>(most)}));
  };
  p.nodes = count("nodes", 1 << 16);
  p.ranks_per_node = count("ranks_per_node", 1 << 10);
  if (groups.has("edp")) p.edp = count("edp", 1 << 26);
  if (groups.has("zero")) p.zero = static_cast<int>(groups.integer("zero", {.least = 0, .most = kMostZeroStage}));
  if (groups.has("recompute")) p.recompute = recompute_from(groups.text("recompute"), groups.where("recompute"));
  return complete(shape, p, rounding_from(layer.text("capacity_rounding"), layer.where("capacity_rounding")));
}

}  // namespace moe
