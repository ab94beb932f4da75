#pragma once
// The verb `microbench`: times ops, or the layer's own kernels, and writes records of the times.
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
  // The flags of the sizes, iterations, warm-ups, check and type have one letter, as in nccl-tests.
  std::vector<std::string> ops;  // ops to time; empty: all ops, slowdowns between lanes, and overheads
  int64_t min_bytes = 0, max_bytes = 0, step_bytes = 0;  // range of collectives' sizes; max_bytes 0: FSMoE's sizes
  double step_factor = 2;
  int iterations = 0, warm_ups = 1;  // runs of an op in one sample (0: automatic), and untimed runs before the samples
  int check = 1;
  std::string dtype = "float32";
  std::string modules;   // NAME[,NAME] or all: on a CPU sub-modules of a layer, on a GPU models, which are timed too
  std::string out;       // file of the records; empty: results/microbench-CLUSTER.jsonl
  bool kernels = false;  // times only the layer's own kernels and their bounds
  bool json = false;
  Invocation invocation;
};

/// Runs the verb and returns its exit code. `processes`: the processes of the run, one rank each, which all call it;
/// null: ranks are threads.
int run_microbench(const MicrobenchOptions& options, World* processes);

}  // namespace moe::microbench
