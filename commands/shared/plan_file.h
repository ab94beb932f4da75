#pragma once
// Plans from files, for verbs that take one instead of a layer and a schedule (moe/formats/plan_json.h).
#include <optional>
#include <span>
#include <string>

#include "moe/formats/chrome_trace.h"
#include "moe/prices/pricer.h"
#include "moe/simulator/simulator.h"

namespace moe::commands {

/// Reads the plan and checks that it is for a cluster of this size. Throws BadInput naming the file.
Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node);

/// Writes the plan in the format of plan_of_file. Throws BadInput naming the file if it cannot be written, or if it
/// exists and is no plan.
void save_plan(const Plan& plan, const std::string& path);

/// Throws BadInput naming --save-plan if it was given with several schedules.
void require_one_saved(const std::string& path, size_t schedules);

/// Returns a lower bound on the seconds of all plans of this plan's schedule.
double bound_seconds(const Plan& plan, const LayerPricer& pricer);

/// The times of a layer's plan: its phases, and the MoE part in them from its first task's start to its last task's
/// end. If the schedule splits its gradients, also the bytes that the backward's MoE part sends.
struct PlanTimes {
  double forward_s = 0, backward_s = 0;
  double moe_forward_s = 0, moe_backward_s = 0;
  int64_t gar_in_moe_bytes = 0;
};
/// Replays each phase alone, like the search. If a backward begins before the forward has ended, or parts of an
/// iteration follow its last forward, the backward's time is the plan's time minus the forward's.
PlanTimes times_of(const Plan& plan, const LayerPricer& pricer);

// The timeline that `--trace FILE` writes.

/// The flags --trace, --trace-layers and --trace-micro-batches.
struct TraceFlags {
  std::string file;  // empty: no timeline is written
  std::optional<int> layers = {},
                     micro_batches =
                         {};  // largest numbers to show (TraceExtent); none: as many as a browser opens quickly
};

/// Throws BadInput if the file exists and is no timeline, because it would be overwritten.
void require_timeline(const std::string& path);

/// Returns the extent that the flags request. Numbers that they leave open are halved, the larger one first, until a
/// trace shows at most kOpenedAtOnce tasks.
TraceExtent trace_extent(std::span<const TraceGroup> groups, const TraceFlags& flags);
/// Number of tasks that a viewer opens in a second: about 5 MB.
inline constexpr int64_t kOpenedAtOnce = 10'000;

/// Logs the timeline's size, and the numbers of layers and micro-batches in it; then writes it. Throws BadInput naming
/// the flag if the file cannot be written.
void write_trace(std::span<const TraceGroup> groups, const TraceFlags& flags);

}  // namespace moe::commands
