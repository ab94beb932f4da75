#pragma once
// The verb `simulate`: one layer, or a model, under chosen schedules on a profile; timeline, lane loads, bounds.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands/noise_report.h"
#include "commands/shared/chosen_model.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/serving.h"
#include "moe/base/check.h"
#include "moe/formats/chrome_trace.h"
#include "moe/record/record.h"

namespace moe::commands {

struct SimulateOptions {
  commands::Selection selection;
  std::string plan;                      // file of a plan to replay unchanged; empty: the selection's layer
  commands::ModelFlags model;            // if it names a model or several layers, a whole model is simulated
  std::optional<std::string> partition;  // partition of a model's gradients; none: exact
  NoiseFlags noise;                      // replays on all ranks with noise, beside the one without
  ServeFlags serve;                      // batches of inference instead of a training step
  std::optional<int> drawn;  // number of schedules of one layer whose lanes are drawn as text, fastest first; none: 3
  bool json = false;
  commands::TraceFlags trace;
  std::string save_plan;       // file for the plan of one schedule; empty: not saved
  std::string out;             // file of the records; empty: none
  bool sweep_degrees = false;  // also writes one record for each degree; needs `out`
  Invocation invocation;
};

/// The requested schedules that the case or the profile does not allow. They are shown as rows with a reason instead of
/// numbers.
class RefusedSchedules {
 public:
  void add(const Schedule& schedule, const Unsupported& error);
  /// Throws Unsupported with the reasons if no schedule is left to show.
  void require_others(size_t asked) const;
  /// Returns the rows "SCHEDULE: unsupported: REASON".
  std::string text() const;
  /// Appends {schedule, status, reason} for each of them.
  void append_to(Json& rows) const;

 private:
  std::vector<std::pair<std::string, Refusal>> rows_;
};

/// Whether a row of the plans fits a rank's memory; none: the profile does not give the memory.
struct PlannedRow {
  std::string_view schedule;
  std::optional<bool> fits;
};

/// Returns the line below the rows: the fastest, the fastest that fits if that is another one, and a rank's memory.
std::string fastest_text(const std::vector<PlannedRow>& fastest_first, const Profile& profile);

int run_simulate(const SimulateOptions& options);

// `simulate --model`: a whole model under chosen schedules.

int run_simulate_model(const SimulateOptions& options);

// The verb `simulate` on the plan of a file, which is replayed unchanged.

int run_simulate_plan(const SimulateOptions& options);

}  // namespace moe::commands
