#pragma once
// The verb `modelbench`: trains a whole model under schedules and compares with the prediction. Every timed pass is a
// step of training: embedding, layers, output projection, loss, gradients, optimizer.
#include <optional>
#include <string>

#include "commands/shared/chosen_model.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/run_options.h"
#include "commands/shared/selection.h"
#include "moe/record/record.h"

namespace moe {
class World;
}

namespace moe::modelbench {

inline constexpr std::string_view kMarkov = "markov", kBytes = "bytes";

struct ModelbenchOptions : commands::RunOptions {
  commands::Selection selection;  // the layer's flags override the model's
  std::string plan;               // file of a plan to run unchanged; empty: the plans of the model
  commands::ModelFlags model;     // empty: gpt2-xl@fsmoe on an emulated cluster, else tiny-gpt
  std::string text{kMarkov};      // or bytes (included_text_path), or a file
  int markov_order = 2;
  int steps = 5;
  std::string optimizer = "adamw";  // or sgd
  double learning_rate = 3e-3, momentum = 0.9, weight_decay = 0;
  double clip_norm = 1;  // largest norm of the gradients; 0: no clipping
  int warm_up = 0;       // steps over which the learning rate grows; then it falls along half a cosine
  int held_out = 8;      // batches of the held-out text after the last step; 0: none
  uint64_t seed = 1;
  bool check_only = false;           // the first step's gradients are verified, and that is all
  std::string dump;                  // folder of the first step's tensors (layer_dump.h): DUMP/SCHEDULE; empty: none
  std::string record_routing;        // file for what its gates chose (routing_record.h); empty: none
  std::string checkpoint;            // folder; a run goes on from its newest one; of one schedule; empty: none
  int checkpoint_every = 0;          // steps; 0: when the run is asked to stop, and at its end
  std::string weights;               // of GPT-2 (moe/model/gpt2_file.h), to begin with; empty: seeded ones
  std::string save_weights;          // file for what one schedule ends with; empty: kept nowhere
  std::optional<double> peak_flops;  // of a rank, a second; empty: as the profile's GEMMs have it
  std::string out;                   // records; empty: results/modelbench-CLUSTER.jsonl
  bool online_packing = false;       // lina-packed packs experts as its steps go on (moe/schedule/packing.h)
  std::string save_plan;             // file for the plan of one schedule; empty: kept nowhere
  commands::TraceFlags trace;        // timeline of one step of each schedule, measured above simulated
  bool tasks = false;
  bool json = false;
  Invocation invocation;
};

/// Runs the verb and returns its exit code. `processes`: the processes of the run, one rank each, which all call it;
/// null: ranks are threads.
int run_modelbench(const ModelbenchOptions& options, World* processes);

}  // namespace moe::modelbench
