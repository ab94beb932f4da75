#pragma once
// The verb `modelbench`: trains a whole model under schedules and compares measured with predicted times. Every timed
// pass is a training step: embedding, layers, output projection, loss, gradients, optimizer.
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
  commands::Selection selection;  // cluster, schedules and layer; its flags override the model's values
  std::string plan;               // file of a plan to run unchanged; empty: plan the model
  commands::ModelFlags model;     // the model; default: gpt2-xl@fsmoe if emulated, else tiny-gpt
  std::string text{kMarkov};      // training text: markov, bytes (included_text_path) or a file
  int markov_order = 2;
  int steps = 5;
  std::string optimizer = "adamw";  // adamw or sgd
  double learning_rate = 3e-3, momentum = 0.9, weight_decay = 0;
  double clip_norm = 1;  // largest norm of the gradients; 0: no clipping
  int warm_up = 0;       // steps over which the learning rate grows; then it falls along half a cosine
  int held_out = 8;      // batches of the held-out text after the last step; 0: none
  uint64_t seed = 1;
  bool check_only = false;           // only verifies the first step's gradients
  std::string dump;                  // folder of the first step's tensors (layer_dump.h): DUMP/SCHEDULE; empty: none
  std::string record_routing;        // file for the routing of the first step (routing_record.h); empty: none
  std::string checkpoint;            // folder of one schedule's checkpoints; resumes from the newest; empty: none
  int checkpoint_every = 0;          // steps between checkpoints; 0: saves at the end, or when told to stop
  std::string weights;               // file of GPT-2's initial weights (moe/model/gpt2_file.h); empty: random
  std::string save_weights;          // file for the final weights of one schedule; empty: not saved
  std::optional<double> peak_flops;  // FLOP/s of a rank; none: the rate of the profile's GEMMs
  std::string out;                   // file of the records; empty: results/modelbench-CLUSTER.jsonl
  bool online_packing = false;       // lina-packed packs experts between its steps (moe/schedule/packing.h)
  std::string save_plan;             // file for the plan of one schedule; empty: not saved
  commands::TraceFlags trace;        // file of timelines of a step of each schedule, measured and simulated
  bool tasks = false;
  bool json = false;
  Invocation invocation;
};

/// Runs the verb and returns its exit code. `processes`: the processes of the run, one rank each, which all call it;
/// null: ranks are threads.
int run_modelbench(const ModelbenchOptions& options, World* processes);

}  // namespace moe::modelbench
