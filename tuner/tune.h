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

/// The layout that the user trains with now. The other flags give what it leaves out.
struct CurrentLayout {
  std::string schedule;                      // SCHEDULE[:R_F[:R_B]]; empty: the one of --schedule
  commands::LayerFlags layer = {};           // samples of a micro-batch, groups, what a rank keeps
  commands::ModelFlags model = {};           // micro-batches
  std::optional<int64_t> global_batch = {};  // samples, which determine the number of micro-batches
  std::optional<commands::LayoutFile> file =
      {};  // file that describes the layout, unless words override it; none: only words

  std::optional<MeasuredSteps> measured = {};

  bool names_shape() const {
    return global_batch || layer != commands::LayerFlags{} || model != commands::ModelFlags{};
  }
};

struct TuneOptions : commands::RunOptions {
  commands::Selection selection;
  commands::ModelFlags model;            // `framework` is the only framework to plan for; empty: all
  bool any_shape = false;                // searches all parallel shapes of the same global batch for the fastest
  std::optional<int64_t> global_batch;   // samples of a step; searches micro-batches; none: other flags determine them
  std::optional<CurrentLayout> current;  // the layout to compare with; none: unknown
  int top = 0;                           // rows of the ranking to show; 0: a short answer
  bool run_all = false;                  // runs and shows every schedule, not only the best and the baselines
  bool verify = true;                    // measures, fits and runs plans; false: only plans on the given profile
  std::optional<int> measured_layers = 6;  // how many layers to run for real; none: every layer of the grid
  int strategy_layers = 0;        // how many layers to plan to compare the papers' strategies with the exact search
  bool measure_degrees = false;   // also measures which degrees are best; needs every layer to run
  std::optional<int> iterations;  // passes of a run; none: 5, or 3 if every layer runs
  uint64_t seed = 1;
  std::string out;             // file of the records; empty: results/tune-CLUSTER.jsonl
  commands::TraceFlags trace;  // timeline of one verified layer; if no file is given, it is written beside the records
  bool strict = false;         // exit code kDoubtful if a weak row prices the answer, or if too few runs are sound
  bool json = false;
  Invocation invocation;
  /// By verb, the given flags that this verb has too, except output flags; the answer ends with commands that use them.
  std::map<std::string, std::vector<GivenFlag>, std::less<>> given_for = {};

  /// Returns whether a shape is searched: all shapes, or the micro-batches of the given groups.
  bool searches() const { return any_shape || global_batch.has_value(); }
};

/// Returns the record "answer/NAME" of a plan on a cluster, without runs.
CaseRecord answer_record(const std::string& name, const std::string& cluster, std::vector<AnswerPart> parts);

/// Returns whether a layer or a model is requested, which has its own kind of answer (tuner/answer), rather than a
/// grid. Throws BadInput if both are.
bool names_one_model(const TuneOptions& options);

/// Runs all of tune (tuner/verify). `processes`: the processes of the run, one rank each, which all call it; null:
/// ranks are threads.
int run_tune(const TuneOptions& options, World* processes);

/// Runs `tune --no-verify`: plans on the profile as it is.
int run_planned_tune(const TuneOptions& options);

}  // namespace moe::tuner
