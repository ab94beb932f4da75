#include "tests/properties/cases.h"

#include <algorithm>
#include <cmath>

#include "moe/base/random.h"

namespace moe::conformance {

std::vector<LayerCase> cases() {
  std::vector<LayerCase> all;
  for (const int nodes : {1, 2, 3, 4})
    for (const int ranks_per_node : {1, 2, 4})
      for (const int mp : {1, 2, 4})
        for (const int ep : {1, 2, 3, 4})
          for (const int esp : {1, 2, 4}) {
            const int ranks = nodes * ranks_per_node;
            if (ranks % mp != 0 || ranks % (ep * esp) != 0) continue;
            LayerShape layer{.batch = 2, .seq = 20, .model_dim = 16, .hidden = 32, .heads = 8, .experts = 12};
            layer.kv_heads = all.size() % 3 == 0 ? 4 : 8;
            layer.shared_hidden = all.size() % 7 < 3 ? 16 : 0;
            layer.ffn = all.size() % 5 < 2 ? Ffn::mixtral : Ffn::gpt;
            const Rounding rounding = all.size() % 4 == 3 ? Rounding::exact : Rounding::ragged;
            const ParallelShape p{.nodes = nodes, .ranks_per_node = ranks_per_node, .mp = mp, .ep = ep, .esp = esp};
            all.push_back(complete(layer, p, rounding));
          }
  return all;
}

std::string text_of(const LayerCase& shape) {
  const ParallelShape& p = shape.parallel;
  return fmt::format("{}, {} nodes x {}, dp {} mp {} edp {} ep {} esp {}, {}", describe(shape.layer), p.nodes,
                     p.ranks_per_node, p.dp, p.mp, p.edp, p.ep, p.esp, name_of(shape.rounding));
}

std::string text_of(const Schedule& schedule, const LayerCase& shape, const Decision& d) {
  return fmt::format("{} r {} {}, {} + {} bytes split, {} gaps, order {} {}, packing {}, {}", schedule.name,
                     d.degree_forward, d.degree_backward, d.gar_in_moe_bytes, d.gar_beside_dense_bytes, d.gaps.size(),
                     d.order_forward, d.order_backward, d.packing, text_of(shape));
}

random_layer::RandomLayer full_layer(uint64_t seed, bool measured) {
  random_layer::RandomLayer layer = random_layer::random_layer(seed, measured);
  const auto seconds = [&](uint64_t index, double least, double decades) {
    return least * std::pow(10.0, decades * random_uniform(seed, 77, index));
  };
  const double bytes = moe_volumes(layer.shape, capacity_exact(layer.shape)).alltoall_bytes;
  ComputeRow copy;
  copy.op = Op::copy;
  copy.alpha_s = seconds(0, 1e-7, 3);
  copy.beta_s_per_byte = seconds(1, 1e-5, 4) / bytes;
  layer.profile.compute.push_back(copy);
  const Group edp = groups_of(layer.shape.parallel)[GroupKind::edp];
  const bool known = std::ranges::any_of(layer.profile.comm, [&](const CommRow& row) {
    return row.op == Op::allreduce && row.network == edp.network && row.ranks == edp.size;
  });
  if (edp.size > 1 && !known) {
    CommRow row;
    row.op = Op::allreduce;
    row.network = edp.network;
    row.ranks = edp.size;
    row.alpha_s = seconds(4, 1e-6, 3);
    row.beta_s_per_byte = seconds(5, 1e-5, 4) / static_cast<double>(expert_gradient_bytes(layer.shape));
    layer.profile.comm.push_back(row);
  }
  if (seed % 4 == 0) return layer;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    ModuleRow order;
    order.name = "order:" + layer.shape.layer.order;
    order.phase = phase;
    order.alpha_s = seconds(2 + static_cast<uint64_t>(phase), 1e-6, 4);
    layer.profile.modules.push_back(order);
  }
  return layer;
}

}  // namespace moe::conformance
