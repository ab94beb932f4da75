#pragma once
// Text and JSON of an outcome, for the verbs that run layers.
#include <span>
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "moe/base/json.h"
#include "moe/measure/layers/layer_bench.h"

namespace moe::commands {

/// Returns a table for each timed schedule: measured and predicted times by kind of task.
std::string tasks_text(const LayerOutcome& outcome);
/// Returns lines about predictions that use weak rows, and the reasons of schedules that are not ok.
std::string reasons_text(const LayerOutcome& outcome);
/// Returns "dilation D", or "dilations D to E" if repeats of disturbed passes increased some dilations.
std::string dilation_text(const std::vector<ScheduleRun>& runs);
/// Returns schedules[] = {schedule, status, degrees, measured, predicted, tasks}.
Json schedules_json(const LayerOutcome& outcome);

// Batches of schedules whose layers fit into memory together.

/// Divides items of `bytes` each, in their order, into batches that fit into `left_bytes`, and returns the end of each
/// batch. An item that does not fit alone is a batch of its own.
std::vector<size_t> batches_that_fit(std::span<const double> bytes, double left_bytes);

/// Measures the plans (layer_bench.h): all at once if the memory of the GPU or the machine suffices, else in batches.
/// Schedules of different batches do not run in turns, so a change of the machine's speed can look like a difference
/// between them. Every process of the ranks calls it. Returns a measurement of each batch.
std::vector<measure::LayerMeasurement> measure_in_batches(std::span<const measure::PlannedRun> planned,
                                                          const measure::LayerBenchSettings& settings);

/// A plan's run, and the measurement that it belongs to.
struct BatchedRun {
  const measure::LayerMeasurement& all;
  const measure::MeasuredRun& run;
};
/// Returns the runs of all batches, in the order of the plans.
std::vector<BatchedRun> runs_of(const std::vector<measure::LayerMeasurement>& batches);

}  // namespace moe::commands
