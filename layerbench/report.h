#pragma once
// The results of `layerbench`, as text and as JSON.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::layerbench {

struct LayerbenchResults {
  std::string cluster, place, grid, records_path;  // place: that of the Target; grid: empty for a layer by flags
  bool emulated = true, check_only = false;
  bool tasks = false;  // the text includes the times of tasks
  std::vector<commands::LayerOutcome> outcomes;
};

/// Returns for each layer a table of times, a table of checks and memory, and the reasons why other schedules did not
/// run; for a grid also means over its layers.
std::string text_of(const LayerbenchResults& results);
/// Returns one document: cluster, records, and `layer` with its `schedules`; for a grid `layers`, a list of these, and
/// `summary`.
std::string json_of(const LayerbenchResults& results);

/// One schedule over a grid's layers; speedups are over tutel, on layers where both ran well.
struct GridSummary {
  std::string schedule;
  int ok = 0, others = 0;                              // number of layers with status ok, and with another one
  int compared = 0;                                    // number of layers in the speedups
  double measured_speedup = 0, predicted_speedup = 0;  // mean ratio of tutel's forward + backward to this one's
  double median_error = 0, worst_error = 0;            // |measured / predicted - 1|
  double exposed_share = 0, overlap = 0;               // means of exposed_s / total_s, and of overlap_efficiency
};
std::vector<GridSummary> summarise(const std::vector<commands::LayerOutcome>& outcomes);

}  // namespace moe::layerbench
