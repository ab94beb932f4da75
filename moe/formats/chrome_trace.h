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

/// When the tasks of a plan ran: one process of the trace, with a track for each lane that has tasks.
struct TraceGroup {
  std::string name;  // "measured", "simulated"
  int rank = -1;     // -1: stands for all ranks
  const Plan* plan = nullptr;
  std::span<const double> start_s, end_s;  // by task id
  std::string cluster = {};                // its name; empty: not said
  const Timeline* predicted = nullptr;     // of the same plan, where the times are measured
  int stage = -1;                          // whose lanes are shown; -1: all stages'
};

/// The part of a plan that a trace shows: so many layers of each stage and so many micro-batches, half of them the
/// first ones, the others the last. What belongs to no layer (embedding, head) is always shown.
struct TraceExtent {
  int layers = std::numeric_limits<int>::max(), micro_batches = std::numeric_limits<int>::max();
};
/// Returns the number of tasks that a trace shows.
int64_t shown_tasks(std::span<const TraceGroup> groups, const TraceExtent& extent);

/// Returns a plan's tasks as they were simulated on that cluster.
TraceGroup trace_group(const Plan& plan, const Timeline& timeline, const std::string& cluster);

/// Writes one JSON object whose traceEvents are complete events in whole nanoseconds, counted from 0 of the group's
/// clock, and an arrow (flow events s and f) for each dependency that crosses lanes: from the last nanosecond of the
/// task waited for to the start of the one that waits. Of several tasks of one lane only the last has an arrow, as it
/// follows the others anyway; a task of no length has none. Slices of a plan of several layers and micro-batches say
/// which (L2 M1, from 1), its tracks which stage. A process is named by schedule and degrees, and labelled with layer
/// and cluster. A slice says whether it is on the critical path and its slack (simulator.h), bytes, GB/s, and
/// beside a measured time the predicted one. Throws WrongResult, before anything is written, for a task that has no
/// times or ends before it starts.
void chrome_trace(std::span<const TraceGroup> groups, std::ostream& out, const TraceExtent& extent = {});
inline constexpr std::string_view kChromeTraceBegins = R"({"displayTimeUnit":)";

}  // namespace moe
