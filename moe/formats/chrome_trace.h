#pragma once
// Timelines as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>

#include "moe/plan/plan.h"
#include "moe/simulator/simulator.h"

namespace moe {

/// The times of a plan's tasks: one process of the trace, with a track for each lane that has tasks.
struct TraceGroup {
  std::string name;  // "measured", "simulated"
  int rank = -1;     // -1: the same for all ranks
  const Plan* plan = nullptr;
  std::span<const double> start_s, end_s;  // by task id
  std::string cluster = {};                // name of the cluster; empty: not shown
  const Timeline* predicted = nullptr;     // simulation of the same plan, if the times are measured
  int stage = -1;                          // the stage whose lanes are shown; -1: all stages
};

/// The part of a plan that a trace shows: `layers` layers of each stage and `micro_batches` micro-batches, half of them
/// the first ones, the others the last ones. Tasks of no layer (embedding, head) are always shown.
struct TraceExtent {
  int layers = std::numeric_limits<int>::max(), micro_batches = std::numeric_limits<int>::max();
};
/// Returns the number of tasks that a trace shows.
int64_t shown_tasks(std::span<const TraceGroup> groups, const TraceExtent& extent);

/// Returns a plan's tasks with their simulated times on that cluster.
TraceGroup trace_group(const Plan& plan, const Timeline& timeline, const std::string& cluster);

/// Writes one JSON object whose traceEvents are complete events in whole nanoseconds, counted from 0 of the group's
/// clock, and an arrow (flow events s and f) for each dependency between lanes: from the last nanosecond of the earlier
/// task to the start of the task that waits. If a task waits for several tasks of one lane, only the last has an arrow,
/// because it follows the others; a task of length 0 has no arrow. In plans of several layers and micro-batches, names
/// of slices include both (L2 M1, counted from 1), and names of tracks the stage. A process is named by schedule and
/// degrees, and labelled with layer and cluster. A slice shows whether it is on the critical path, its slack
/// (simulator.h), bytes, GB/s and, if it is measured, the predicted time. Throws WrongResult, before it writes
/// anything, for a task that has no times or ends before it starts.
void chrome_trace(std::span<const TraceGroup> groups, std::ostream& out, const TraceExtent& extent = {});
inline constexpr std::string_view kChromeTraceBegins = R"({"displayTimeUnit":)";

}  // namespace moe
