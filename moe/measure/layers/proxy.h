#pragma once
// Makes the proxy of an emulated cluster: the nominal shape decides what takes how long, small tensors on four ranks
// carry real data through the same tasks.
#include <string>

#include "moe/device/kind.h"
#include "moe/plan/plan.h"

namespace moe::measure {

inline constexpr int kProxyNodes = 2, kProxyRanksPerNode = 2;
/// Returns "2 x 2 threads": what emulates a cluster.
std::string proxy_ranks();

/// Returns the proxy's case: 2 nodes x 2 ranks a stage; groups of 2 where the nominal has more than one rank; experts a
/// rank as nominal; k' = min(k, E'); M' = 64, H' = 64 H / M; rows enough that every chunk of both degrees has some.
LayerCase proxy_case(const LayerCase& nominal, int degree_forward, int degree_backward);

/// Returns such a case on all ranks of `nominal`: it proves the plan where the layer is too large for a reference.
LayerCase small_case(const LayerCase& nominal, int degree_forward, int degree_backward);
/// Returns about how many FLOPs the reference of a layer takes, forward and backward.
double reference_flops(const LayerCase& shape);

/// Returns the nominal plan's structure over the proxy's shape, with gradient slices cut at the same fractions.
/// `vocabulary`: of a model's proxy. Where the proxy has one rank in a group, its collectives move nothing and
/// take the nominal's time.
Plan proxy_plan(const Plan& nominal, const LayerCase& proxy, int64_t vocabulary = 0);
/// Returns proxy_plan of proxy_case, in a type that the device computes in: what runs on an emulated cluster.
Plan emulated_plan(const Plan& nominal, DeviceKind device, int64_t vocabulary);
/// Returns proxy_plan of small_case: what is verified in the place of `nominal`.
Plan proving_plan(const Plan& nominal, int64_t vocabulary);

}  // namespace moe::measure
