#pragma once
// The verb `placement`: where context parallelism is placed relative to expert parallelism, by MoNTA's rule.
#include "moe/shape/groups.h"

namespace moe::commands {

struct PlacementOptions {
  PlacementRequest request{.tp = 8, .ep = 8, .cp = 4, .pp = 1, .dp = 1, .ranks_per_node = 8, .switch_ports = 32};
  bool json = false;
};

int run_placement(const PlacementOptions& options);

}  // namespace moe::commands
