#pragma once
// The verb `tune`: measures the cluster, fits a profile, plans a layer, a model or a grid of layers, and runs some of
// the plans to check the predictions.
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

/// A flag of the command line; `value` is empty if the flag takes none.
struct GivenFlag {
  std::string name, value;
};

/// Steps of the user's training, in the order in which they ran.
struct MeasuredSteps {
  std::vector<double> seconds;  // seconds of a step, or of each sample of it; at least one
  bool is_per_sample = false;
  std::vector<double> flops_per_s = {};  // FLOP/s of a rank in the training's log; empty: not in the log
};

/// The layout that the user trains with now. Values that it leaves out come from the other flags.
struct CurrentLayout {
  std::string schedule;                      // SCHEDULE[:R_F[:R_B]]; empty: that of --schedule
  commands::LayerFlags layer = {};           // samples of a micro-batch, groups, states that a rank keeps
  commands::ModelFlags model = {};           // micro-batches
  std::optional<int64_t> global_batch = {};  // samples of a step, which determine the number of micro-batches
  std::optional<commands::LayoutFile> file =
      {};  // file of the layout, which words of --current may override; none: only words

  std::optional<MeasuredSteps> measured = {};

  bool names_shape() const {
    return global_batch || layer != commands::LayerFlags{} || model != commands::ModelFlags{};
  }
};

struct TuneOptions : commands::RunOptions {
  commands::Selection selection;
  commands::ModelFlags model;           // `framework` is the only framework to plan for; empty: all
  bool any_shape = false;               // searches all parallel shapes of the same global batch for the fastest
  std::optional<int64_t> global_batch;  // samples of a step, for which micro-batches are searched; none: by other flags
  std::optional<CurrentLayout> current;    // the layout to compare with; none: unknown
  int top = 0;                             // number of rows of the ranking to show; 0: a short answer
  bool run_all = false;                    // runs and shows every schedule, not only the best and the baselines
  bool verify = true;                      // false: only plans by the given profile, without measuring and running
  std::optional<int> measured_layers = 6;  // number of the grid's layers to run; none: all
  int strategy_layers = 0;  // number of layers on which to compare the papers' search strategies with the exact search
  bool measure_degrees = false;   // also measures which degrees are best; requires that all layers run
  std::optional<int> iterations;  // timed passes of a run; none: 5, or 3 if every layer runs
  uint64_t seed = 1;
  std::string out;             // file of the records; empty: results/tune-CLUSTER.jsonl
  commands::TraceFlags trace;  // file of one verified layer's timeline; if empty, it is beside the records
  bool strict = false;  // true: exit code kDoubtful if a weak row prices the answer, or if too few runs are sound
  bool json = false;
  Invocation invocation;
  /// For each other verb, those of the given flags that the verb has, too, except output flags. The answer ends with
  /// command lines of these verbs.
  std::map<std::string, std::vector<GivenFlag>, std::less<>> given_for = {};

  /// Returns whether a shape is searched: all shapes, or the micro-batches of the given groups.
  bool searches() const { return any_shape || global_batch.has_value(); }
};

/// Returns the record "answer/NAME" with the parts of an answer for a cluster. It has no runs.
CaseRecord answer_record(const std::string& name, const std::string& cluster, std::vector<AnswerPart> parts);

/// Returns true if a layer or a model is requested (answered by tuner/answer), and false for a grid. Throws BadInput if
/// both are.
bool names_one_model(const TuneOptions& options);

/// Runs all of tune (tuner/verify). `processes`: the processes of the run, one rank each, which all call it; null:
/// ranks are threads.
int run_tune(const TuneOptions& options, World* processes);

/// Runs `tune --no-verify`: plans by the given profile and measures nothing.
int run_planned_tune(const TuneOptions& options);

}  // namespace moe::tuner
