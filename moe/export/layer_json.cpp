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

}  // namespace moe
