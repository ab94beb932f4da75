#pragma once
// The results of `layerbench`, as text and as JSON.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::layerbench {

struct LayerbenchResults {
  std::string cluster, place, grid, records_path;  // place of the Target; no grid: one layer by hand
  bool emulated = true, check_only = false;
  bool tasks = false;  // shows tasks in the text too
  std::vector<commands::LayerOutcome> outcomes;
};

/// Shows for each layer a table of times, a table of checks and memory, and why other schedules have no row there; for
/// a grid also means over its layers.
std::string text_of(const LayerbenchResults& results);
/// Returns one document: cluster, records, and `layer` with its `schedules`; for a grid `layers`, a list of these, and
/// `summary`.
std::string json_of(const LayerbenchResults& results);

/// One schedule over a grid's layers; speedups are over tutel, on layers where both ran well.
struct GridSummary {
  std::string schedule;
  int ok = 0, others = 0;                              // number of layers by the record's status
  int compared = 0;                                    // layers that are compared with tutel
  double measured_speedup = 0, predicted_speedup = 0;  // mean of tutel's forward + backward over the schedule's own
  double median_error = 0, worst_error = 0;            // |measured / predicted - 1|
  double exposed_share = 0, overlap = 0;               // means: exposed_s over total_s; overlap_efficiency
};
std::vector<GridSummary> summarise(const std::vector<commands::LayerOutcome>& outcomes);

}  // namespace moe::layerbench
