#pragma once
// What `layerbench` found, as text and as JSON.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::layerbench {

struct LayerbenchResults {
  std::string cluster, place, grid, records_path;  // place: Target's; grid: empty: one layer by hand
  bool emulated = true, check_only = false;
  bool tasks = false;  // in the text too
  std::vector<commands::LayerOutcome> outcomes;
};

/// Shows for each layer a table of times, one of what each schedule was checked for and holds, and why others have no
/// row there; for a grid also means over its layers.
std::string text_of(const LayerbenchResults& results);
/// Returns one document: cluster, records, and `layer` with its `schedules`, or of a grid `layers` of these and
/// `summary`.
std::string json_of(const LayerbenchResults& results);

/// Sums up one schedule over a grid's layers; speedups are over tutel, where both ran well.
struct GridSummary {
  std::string schedule;
  int ok = 0, others = 0;                              // layers by the record's status
  int compared = 0;                                    // with tutel
  double measured_speedup = 0, predicted_speedup = 0;  // mean of tutel's forward + backward over its own
  double median_error = 0, worst_error = 0;            // |measured / predicted - 1|
  double exposed_share = 0, overlap = 0;               // means: exposed_s over total_s; overlap_efficiency
};
std::vector<GridSummary> summarise(const std::vector<commands::LayerOutcome>& outcomes);

}  // namespace moe::layerbench
