#include "tests/prices/random_layer.h"

#include <cmath>

#include "moe/base/random.h"

namespace moe::random_layer {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t pick(std::initializer_list<int64_t> values) {
    return values.begin()[random_bits(seed_, 1, index_++) % values.size()];
  }
  int divisor(int n) {
    std::vector<int> all;
    for (int d = 1; d <= n; ++d)
      if (n % d == 0) all.push_back(d);
    return all[random_bits(seed_, 1, index_++) % all.size()];
  }
  int64_t shared_hidden() const { return random_bits(seed_, 3, 0) % 3 == 0 ? 64 : 0; }
  double uniform() { return random_uniform(seed_, 2, index_++); }
  /// Log-uniform from `least` over so many decades.
  double seconds(double least, double decades) { return least * std::pow(10.0, decades * uniform()); }

 private:
  uint64_t seed_, index_ = 0;
};

LayerCase random_case(Draws& draws) {
  LayerShape layer;
  layer.batch = draws.pick({1, 2});
  layer.seq = draws.pick({16, 48, 96});
  layer.heads = draws.pick({8, 16});
  layer.model_dim = layer.heads;
  layer.kv_heads = draws.pick({4, 8});
  layer.hidden = 64;
  layer.shared_hidden = draws.shared_hidden();
  layer.experts = 24;
  layer.top_k = draws.pick({1, 2, 8});
  layer.ffn = draws.pick({0, 1}) == 0 ? Ffn::gpt : Ffn::mixtral;
  ParallelShape parallel;
  parallel.nodes = static_cast<int>(draws.pick({1, 2, 3, 4}));
  parallel.ranks_per_node = static_cast<int>(draws.pick({1, 2, 4}));
  const int ranks = parallel.ranks();
  do parallel.mp = draws.divisor(ranks);
  while (parallel.mp == 3 || parallel.mp > 8 || parallel.mp == 6);
  do {
    parallel.ep = draws.divisor(ranks);
    parallel.esp = draws.divisor(ranks / parallel.ep);
  } while (24 % parallel.ep != 0 || 64 % parallel.esp != 0);
  return complete(layer, parallel, draws.pick({0, 1}) == 0 ? Rounding::ragged : Rounding::exact);
}

// alpha + beta of the volume, or a curve of a few points around it.
CommRow row_of(Draws& draws, Op op, const Group& group, double volume, bool measured) {
  CommRow row;
  row.op = op;
  row.network = group.network;
  row.ranks = group.size;
  row.alpha_s = draws.seconds(1e-6, 3);
  row.beta_s_per_byte = draws.seconds(1e-5, 4) / volume;
  if (!measured) return row;
  double size = volume * draws.seconds(0.01, 1), time = row.alpha_s;
  for (int i = 0; i < 5; ++i) {
    row.points.push_back({size, time});
    size += volume * draws.seconds(0.03, 1);
    time += draws.seconds(1e-6, 3);
  }
  return row;
}

void add_comm(Draws& draws, RandomLayer& layer, bool measured) {
  const Groups groups = groups_of(layer.shape.parallel);
  const MoeVolumes volumes = moe_volumes(layer.shape, capacity_exact(layer.shape));
  const auto add = [&](Op op, GroupKind kind, double volume) {
    const Group& group = groups[kind];
    if (group.size == 1) return;
    for (const CommRow& row : layer.profile.comm)
      if (row.op == op && row.network == group.network && row.ranks == group.size) return;
    layer.profile.comm.push_back(row_of(draws, op, group, volume, measured));
  };
  add(Op::alltoall, GroupKind::ep, volumes.alltoall_bytes);
  add(Op::allgather, GroupKind::esp, volumes.gathered_bytes);
  add(Op::reducescatter, GroupKind::esp, volumes.gathered_bytes);
  add(Op::allgather, GroupKind::mp, mp_bytes(layer.shape));
  add(Op::reducescatter, GroupKind::mp, mp_bytes(layer.shape));
  add(Op::allreduce, GroupKind::dp, static_cast<double>(gradient_bytes(layer.shape)));
  // What other flows than FSMoE's need; inside a node an AllReduce is derived.
  add(Op::allreduce, GroupKind::edp, mp_bytes(layer.shape));
  for (const GroupKind kind : {GroupKind::mp, GroupKind::esp})
    if (groups[kind].network == Network::inter) add(Op::allreduce, kind, mp_bytes(layer.shape));
  if (groups[GroupKind::ep].size == 1) add(Op::alltoall, GroupKind::ep_esp, volumes.gathered_bytes);
}

}  // namespace

RandomLayer random_layer(uint64_t seed, bool measured) {
  Draws draws(seed);
  RandomLayer layer;
  layer.shape = random_case(draws);
  layer.profile.name = "random";
  layer.profile.nodes = layer.shape.parallel.nodes;
  layer.profile.ranks_per_node = layer.shape.parallel.ranks_per_node;
  add_comm(draws, layer, measured);
  const double flops = moe_volumes(layer.shape, capacity_exact(layer.shape)).expert_flops;
  ComputeRow gemm;
  gemm.op = Op::gemm;
  gemm.alpha_s = draws.seconds(1e-7, 5);
  gemm.beta_s_per_flop = draws.seconds(1e-5, 4) / flops;
  layer.profile.compute.push_back(gemm);
  if (draws.pick({0, 1}) == 0) layer.profile.task_overhead_s = draws.seconds(1e-7, 2);
  const ParallelShape& p = layer.shape.parallel;
  layer.text = fmt::format("seed {}: {}, {} nodes x {}, dp {} mp {} edp {} ep {} esp {}, {}{}", seed,
                           describe(layer.shape.layer), p.nodes, p.ranks_per_node, p.dp, p.mp, p.edp, p.ep, p.esp,
                           name_of(layer.shape.rounding), measured ? ", measured curves" : "");
  return layer;
}

RandomLayer contended(RandomLayer layer, uint64_t seed) {
  Draws draws(seed + 7777);
  Contention& c = layer.profile.contention;
  for (double* factor : {&c.intra_by_inter, &c.inter_by_intra, &c.compute_by_inter, &c.compute_by_intra,
                         &c.inter_by_compute, &c.intra_by_compute})
    *factor = draws.pick({0, 1, 1}) == 0 ? 1 : 1 + 2 * draws.uniform();
  layer.text += fmt::format(
      ", intra by inter {:.3f}, inter by intra {:.3f}, compute by {:.3f} {:.3f}, by compute "
      "{:.3f} {:.3f}",
      c.intra_by_inter, c.inter_by_intra, c.compute_by_inter, c.compute_by_intra, c.inter_by_compute,
      c.intra_by_compute);
  return layer;
}

}  // namespace moe::random_layer
