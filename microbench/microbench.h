#pragma once
// The verb `microbench`: times ops, or the layer's own kernels, into records.
#include <string>

#include "commands/shared/run_options.h"
#include "commands/shared/selection.h"
#include "moe/record/record.h"

namespace moe {
class World;
}

namespace moe::microbench {

struct MicrobenchOptions : commands::RunOptions {
  std::string cluster{commands::kDefaultCluster};
  int repetitions = 5;
  // Their flags have one letter, as in nccl-tests.
  std::vector<std::string> ops;                          // empty: all ops, slowdowns between lanes, overheads
  int64_t min_bytes = 0, max_bytes = 0, step_bytes = 0;  // sizes of collectives; max_bytes 0: FSMoE's sizes
  double step_factor = 2;
  int iterations = 0, warm_ups = 1;  // runs of an op in one sample (0: chosen), and before the samples
  int check = 1;
  std::string dtype = "float32";
  std::string modules;   // NAME[,NAME] or all: sub-modules of a layer, timed too, on the host; on a GPU of models
  std::string out;       // records; empty: results/microbench-CLUSTER.jsonl
  bool kernels = false;  // the layer's own kernels beside their bounds, and nothing else
  bool json = false;
  Invocation invocation;
};

/// Runs the verb and returns its exit code. `processes`: the processes of the run, one rank each, which all call it;
/// null: ranks are threads.
int run_microbench(const MicrobenchOptions& options, World* processes);

}  // namespace moe::microbench
