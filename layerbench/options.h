#pragma once
// What `layerbench` is asked for.
#include <string>
#include <vector>

#include "moe/search/selection.h"

namespace moe {

struct LayerbenchOptions {
  Selection selection;
  int iterations = 5;
  uint64_t seed = 1;
  double timeout_s = 60;
  std::string out;  // records; empty: results/layerbench-CLUSTER.jsonl
  std::string workload = "gate";
  std::string trace;  // timeline, measured above simulated; empty: none
  bool check_only = false;
  bool json = false;
  std::vector<std::string> argv;
};

}  // namespace moe
