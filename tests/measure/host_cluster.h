#pragma once
// This machine's threads, as benches over them see a cluster.
#include "moe/measure/layers/proxy.h"
#include "moe/prices/profile.h"

namespace moe::measure {

inline Profile host_cluster() {
  Profile host;
  host.name = "host";
  host.nodes = kProxyNodes;
  host.ranks_per_node = kProxyRanksPerNode;
  return host;
}

}  // namespace moe::measure
