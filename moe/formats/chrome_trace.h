#pragma once
// Timelines as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>

#include "moe/plan/plan.h"
#include "moe/simulator/simulator.h"

namespace moe {

/// The times of a plan's tasks. In a trace, a group is a process, with a track for each lane that has tasks.
struct TraceGroup {
  std::string name;  // "measured", "simulated"
  int rank = -1;     // rank whose times these are; -1: all ranks
  const Plan* plan = nullptr;
  std::span<const double> start_s, end_s;  // by task id
  std::string cluster = {};                // name of the cluster; empty: not shown
  const Timeline* predicted = nullptr;     // simulated times of the same plan, if start_s and end_s are measured
  int stage = -1;                          // the stage whose lanes are shown; -1: all stages
};

/// The part of a plan that a trace shows: at most `layers` layers of each stage and `micro_batches` micro-batches, half
/// of them the first ones and half the last ones. Tasks of embedding and head are always shown.
struct TraceExtent {
  int layers = std::numeric_limits<int>::max(), micro_batches = std::numeric_limits<int>::max();
};
/// Returns the number of tasks that a trace shows.
int64_t shown_tasks(std::span<const TraceGroup> groups, const TraceExtent& extent);

/// Returns a plan's tasks with their simulated times on that cluster.
TraceGroup trace_group(const Plan& plan, const Timeline& timeline, const std::string& cluster);

/// Writes the trace as one JSON object. Tasks are complete events, in whole nanoseconds from time 0 of their group.
/// Dependencies between lanes are arrows (flow events s and f) from the last nanosecond of a task to the start of the
/// task that waits for it; if a task waits for several tasks of one lane, only the last has an arrow, and tasks of
/// length 0 have none. In plans of several layers and micro-batches, the names of slices include both (L2 M1, counted
/// from 1), and those of tracks the stage. A process is named by schedule and degrees, and labelled with layer and
/// cluster. A slice has its slack, whether it is on the critical path (simulator.h), bytes, GB/s and, if measured, the
/// predicted time. Throws WrongResult, before writing anything, for a task that has no times or ends before it starts.
void chrome_trace(std::span<const TraceGroup> groups, std::ostream& out, const TraceExtent& extent = {});
inline constexpr std::string_view kChromeTraceBegins = R"({"displayTimeUnit":)";

}  // namespace moe
