#pragma once
// The verb `layerbench`: runs one layer, or a stack of them, under schedules, and compares with the prediction.
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
  std::string plan;               // file of a plan to run unchanged; empty: the selection's layers
  commands::Selection selection;  // layers to run; with a grid: its layers, modified by the layer's flags
  commands::ModelFlags stack;     // layers, micro-batches and pipeline order of one layer; not with a grid
  commands::ServeFlags serve;     // batches of inference in the place of training passes
  int layers = 6;                 // most layers of a grid to run (pick_layers); 0: all
  int drawn = 0;  // number of layers to draw inside the grid's hull (draw_layers) instead of its own; 0: none
  std::vector<std::string> only;  // of a grid: these, in the place of a number; empty: by number
  std::optional<int> iterations;  // none: 5, and where nothing paces them as many as take a second
  uint64_t seed = 1;
  std::string out;  // file of the records; empty: results/layerbench-CLUSTER.jsonl
  std::string workload = "gate";
  commands::TraceFlags trace;  // timeline of the first layer, measured above simulated
  std::string dump;  // folder of tensors (layer_dump.h): DUMP/SCHEDULE, for a grid DUMP/LAYER/SCHEDULE; empty: none
  std::string record_routing;  // file for the choices of the first schedule's gates (routing_record.h); empty: none
  bool tasks = false;          // prints how each kind of task compares with its prediction
  bool check_only = false;
  bool graphs = false;   // also times passes replayed as CUDA graphs (Executor::record)
  bool profile = false;  // runs one more pass of each schedule, for a profiler
  bool predict = true;   // else degrees are given, only the layer is measured, and plans have nominal prices
  std::string slow;      // KIND:FACTOR[:RANK], slowed on purpose (rank_run.h); empty: nothing
  std::string against;   // what the layer is compared with instead: "torch" (commands/torch_peer.h); empty: nothing
  bool json = false;
  Invocation invocation;
};

/// Runs the verb and returns its exit code. `processes`: the processes of the run, one rank each, which all call it;
/// null: ranks are threads.
int run_layerbench(const LayerbenchOptions& options, World* processes);

}  // namespace moe::layerbench
