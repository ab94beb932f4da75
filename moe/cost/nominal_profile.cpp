#include "moe/cost/nominal_profile.h"

#include <algorithm>

namespace moe {
namespace {

constexpr double kDispatchS = 1e-3, kAlphaS = kDispatchS / 8;

void add_comm(Profile& profile, Op op, const Group& group, double beta, std::string_view algorithm) {
  const CommRow row{.op = op,
                    .network = group.network,
                    .ranks = group.size,
                    .alpha_s = kAlphaS,
                    .beta_s_per_byte = beta,
                    .algorithm = std::string(algorithm)};
  const auto same = [&](const CommRow& other) { return row_name(other) == row_name(row); };
  if (std::ranges::none_of(profile.comm, same)) profile.comm.push_back(row);
}

}  // namespace

Profile nominal_profile(const LayerCase& shape) {
  Profile profile;
  profile.name = "nominal";
  profile.nodes = shape.parallel.nodes;
  profile.ranks_per_node = shape.parallel.ranks_per_node;
  const double bytes = whole_work(TaskKind::dispatch, Phase::forward, shape, Flow::sharded).bytes;
  const double flops = whole_work(TaskKind::expert, Phase::forward, shape, Flow::sharded).flops;
  const double beta = kDispatchS / std::max(bytes, 1.0);
  for (const Group& group : groups_of(shape.parallel)) {
    if (group.network == Network::none) continue;
    for (const Op op : collectives()) add_comm(profile, op, group, beta, CommRow{}.algorithm);
    add_comm(profile, Op::sendrecv, {group.kind, 2, group.network}, beta, CommRow{}.algorithm);
    if (shape.layer.dispatcher != "alltoall") add_comm(profile, Op::alltoall, group, beta, shape.layer.dispatcher);
  }
  profile.compute.push_back({.op = Op::gemm,
                             .dtype = shape.layer.dtype,
                             .alpha_s = kAlphaS / 2,
                             .beta_s_per_flop = kDispatchS / std::max(flops, 1.0)});
  profile.compute.push_back({.op = Op::copy, .beta_s_per_byte = beta / 10});
  return profile;
}

}  // namespace moe
