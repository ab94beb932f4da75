#pragma once
// The verb `tune`: measure the cluster, fit it, plan a layer, a model or a grid of layers, and run some of what was
// planned to check the prediction.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/chosen_model.h"
#include "commands/shared/layout_file.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/run_options.h"
#include "commands/shared/selection.h"
#include "moe/record/record.h"

namespace moe {
class World;
}

namespace moe::tuner {

/// A flag as it was given; `value` is empty if the flag takes none.
struct GivenFlag {
  std::string name, value;
};

/// Steps of the user's training, in the order in which they ran.
struct MeasuredSteps {
  std::vector<double> seconds;  // of a step, or of one sample of it; at least one
  bool is_per_sample = false;
  std::vector<double> flops_per_s = {};  // of a rank, as the training's log counts them; empty: it does not
};

/// The layout that the user trains with now. What it does not say is as the other flags say.
struct CurrentLayout {
  std::string schedule;                           // SCHEDULE[:R_F[:R_B]]; empty: the one of --schedule
  commands::LayerFlags layer = {};                // samples of a micro-batch, groups, what a rank keeps
  commands::ModelFlags model = {};                // micro-batches
  std::optional<int64_t> global_batch = {};       // samples, which say the number of micro-batches
  std::optional<commands::LayoutFile> file = {};  // that says it, but for what words beside it say; none: words alone

  std::optional<MeasuredSteps> measured = {};

  bool names_shape() const {
    return global_batch || layer != commands::LayerFlags{} || model != commands::ModelFlags{};
  }
};

struct TuneOptions : commands::RunOptions {
  commands::Selection selection;
  commands::ModelFlags model;
  bool any_shape = false;                // of all parallel shapes the fastest is taken, at the same global batch
  std::optional<int64_t> global_batch;   // samples, of which micro-batches are searched; none: as other flags say
  std::optional<CurrentLayout> current;  // to compare with; none: unknown
  std::string framework;                 // whose schedules and shapes alone are planned, by its key; empty: any
  int top = 0;                           // rows of its ranking that are shown; 0: a short answer
  bool run_all = false;                  // every schedule is run and shown, not the best and the baselines alone
  bool verify = true;                    // measure, fit and verify by real runs; else plan on the profile as it stands
  std::optional<int> measured_layers = 6;  // to run for real; none: every layer of the grid
  int strategy_layers = 0;        // planned: on which the papers' strategies are compared with the exact search
  bool measure_degrees = false;   // with every layer: which degrees are best by measurement
  std::optional<int> iterations;  // none: 5, of every layer 3
  uint64_t seed = 1;
  std::string out;             // records; empty: results/tune-CLUSTER.jsonl
  commands::TraceFlags trace;  // timeline of one verified layer; no file: beside the records
  bool strict = false;         // exit code kDoubtful where a weak row prices the answer, or runs say little
  bool json = false;
  Asked asked;
  /// The given flags that another verb has too, output aside, by that verb: for the command that an answer ends with.
  std::map<std::string, std::vector<GivenFlag>, std::less<>> given_for = {};

  /// Returns whether shapes are searched: all of them, or micro-batches of the given groups.
  bool searches() const { return any_shape || global_batch.has_value(); }
};

/// Returns the record "answer/NAME" of what was planned on a cluster, without runs.
CaseRecord answer_record(const std::string& name, const std::string& cluster, std::vector<AnswerPart> parts);

/// Returns whether a layer or a model is asked for, which has an answer of its own (tuner/answer); else a grid. Throws
/// BadInput where it is both.
bool asks_one(const TuneOptions& options);

/// Runs all of tune (tuner/verify). `processes`: those of the run, one rank each, which all call it; null: ranks are
/// threads.
int run_tune(const TuneOptions& options, World* processes);

/// `tune --no-verify`: plans on the profile as it stands.
int run_planned_tune(const TuneOptions& options);

}  // namespace moe::tuner
