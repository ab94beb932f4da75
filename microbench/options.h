#pragma once
// What `microbench` is asked for.
#include <string>
#include <vector>

#include "moe/search/selection.h"

namespace moe {

struct MicrobenchOptions {
  std::string cluster{kDefaultCluster};
  int repetitions = 5;
  double timeout_s = 60;
  std::string modules;   // NAME[,NAME] or all: sub-modules of a layer, timed too; on the host
  std::string out;       // records; empty: results/microbench-CLUSTER.jsonl
  bool kernels = false;  // the layer's own kernels beside their bounds, and nothing else
  bool json = false;
  std::vector<std::string> argv;
};

}  // namespace moe
