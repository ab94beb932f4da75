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
  std::string plan;                      // file of a plan to replay as it stands; empty: the selection's layer
  commands::ModelFlags model;            // with a model or several layers: a whole model
  std::optional<std::string> partition;  // of a model's gradients; empty: exact
  NoiseFlags noise;                      // replays on all ranks beside the even one
  ServeFlags serve;                      // batches of inference in the place of a training step
  std::optional<int> drawn;  // schedules of one layer whose lanes are drawn as text, the fastest first; empty: 3
  bool json = false;
  commands::TraceFlags trace;
  std::string save_plan;       // file for the plan of one schedule; empty: none
  std::string out;             // records; empty: none
  bool sweep_degrees = false;  // one record a degree too; needs `out`
  Asked asked;
};

/// The schedules asked for that the case or the profile does not allow: rows like the others, with a reason in
/// the place of numbers.
class Refused {
 public:
  void add(const Schedule& schedule, const Unsupported& error);
  /// Throws Unsupported with the reasons where no schedule is left to show.
  void require_others(size_t asked) const;
  /// Returns the rows "SCHEDULE: unsupported: REASON".
  std::string text() const;
  /// Appends {schedule, status, reason} of each.
  void append_to(Json& rows) const;

 private:
  std::vector<std::pair<std::string, Refusal>> rows_;
};

/// Whether a rank's memory holds a row of what is planned; empty: the profile does not say.
struct PlannedRow {
  std::string_view schedule;
  std::optional<bool> fits;
};

/// Returns the line under the rows: the fastest, the fastest that fits where that is another, what memory a rank has.
std::string fastest_text(const std::vector<PlannedRow>& fastest_first, const Profile& profile);

int run_simulate(const SimulateOptions& options);

// `simulate --model`: a whole model under chosen schedules.

int run_simulate_model(const SimulateOptions& options);

// The verb `simulate` on a plan of a file, as it stands.

int run_simulate_plan(const SimulateOptions& options);

}  // namespace moe::commands
