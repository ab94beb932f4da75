#pragma once
// The verb `layerbench`: runs one layer or a stack of layers under schedules, and compares measured with predicted
// times.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/chosen_model.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/run_options.h"
#include "commands/shared/selection.h"
#include "commands/shared/serving.h"
#include "moe/record/record.h"

namespace moe {
class World;
}

namespace moe::layerbench {

inline constexpr int kRunBatches = 24;  // batches of synthetic routing that --serve profiles and serves

struct LayerbenchOptions : commands::RunOptions {
  std::string plan;               // file of a plan to run unchanged; empty: plan the selection's layers
  commands::Selection selection;  // layers to run; the layer's flags modify the layers of a grid
  commands::ModelFlags stack;     // number of layers, micro-batches, pipeline order; not with a grid
  commands::ServeFlags serve;     // settings of inference batches, which replace training passes
  int layers = 6;                 // largest number of a grid's layers to run (pick_layers); 0: all
  int drawn = 0;  // number of random layers inside the grid's range (draw_layers) to run instead of its own; 0: none
  std::vector<std::string> only;  // names of the grid's layers to run; empty: `layers` decides
  std::optional<int> iterations;  // passes to time; none: 5 if paced, else as many as take a second
  uint64_t seed = 1;
  std::string out;  // file of the records; empty: results/layerbench-CLUSTER.jsonl
  std::string workload = "gate";
  commands::TraceFlags trace;  // file of the first layer's timelines, measured and simulated
  std::string dump;  // folder of tensors (layer_dump.h): DUMP/SCHEDULE, for a grid DUMP/LAYER/SCHEDULE; empty: none
  std::string record_routing;  // file for the routing under the first schedule (routing_record.h); empty: none
  bool tasks = false;          // prints measured and predicted seconds by kind of task
  bool check_only = false;
  bool graphs = false;   // also times passes replayed as CUDA graphs (Executor::record)
  bool profile = false;  // runs one more pass of each schedule, for a profiler
  bool predict = true;   // false: only measures layers, at given degrees; plans have nominal prices
  std::string slow;      // KIND:FACTOR[:RANK]: tasks to slow on purpose (rank_run.h); empty: none
  std::string against;   // "torch": compares the layer with PyTorch instead (commands/torch_peer.h); empty: does not
  bool json = false;
  Invocation invocation;
};

/// Runs the verb and returns its exit code. `processes`: the processes of the run, one rank each, which all call it;
/// null: ranks are threads.
int run_layerbench(const LayerbenchOptions& options, World* processes);

}  // namespace moe::layerbench
