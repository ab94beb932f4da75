#pragma once
// A plan out of a file, for verbs that take one in the place of a layer and a schedule (moe/formats/plan_json.h).
#include <optional>
#include <span>
#include <string>

#include "moe/formats/chrome_trace.h"
#include "moe/prices/pricer.h"
#include "moe/simulator/simulator.h"

namespace moe::commands {

/// Reads the plan and checks that it is of a cluster of so many nodes. Throws BadInput naming the file.
Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node);

/// Writes the plan, which plan_of_file reads. Throws BadInput naming the file where it can't be written, or where it
/// holds something else.
void save_plan(const Plan& plan, const std::string& path);

/// Throws BadInput naming --save-plan where it was given beside several schedules.
void require_one_saved(const std::string& path, size_t schedules);

/// Returns the seconds that no plan of this one's schedule beats, whatever it decides.
double bound_seconds(const Plan& plan, const LayerPricer& pricer);

/// What a layer's plan takes: its phases, in them the MoE part, from the start of its first task to the end of its
/// last one; and of a schedule that splits its gradients, what the backward's MoE part sends.
struct PlanTimes {
  double forward_s = 0, backward_s = 0;
  double moe_forward_s = 0, moe_backward_s = 0;
  int64_t gar_in_moe_bytes = 0;
};
/// Replays each phase alone, as the search does; a backward that begins before the forward has ended, and what of an
/// iteration follows its last forward, take what the plan takes longer than the forward.
PlanTimes times_of(const Plan& plan, const LayerPricer& pricer);

// The timeline that `--trace FILE` asks for.

/// The flags --trace, --trace-layers and --trace-micro-batches.
struct TraceFlags {
  std::string file;                                    // empty: no timeline was asked for
  std::optional<int> layers = {}, micro_batches = {};  // that it shows (TraceExtent); none: what opens at once
};

/// Throws BadInput where the file holds something that is no timeline: it would be lost.
void require_timeline(const std::string& path);

/// Returns the extent that the flags ask for. What they leave open is halved, the larger number first, until a trace
/// shows at most kOpenedAtOnce tasks.
TraceExtent trace_extent(std::span<const TraceGroup> groups, const TraceFlags& flags);
/// Tasks that a viewer opens in a second: about 5 MB.
inline constexpr int64_t kOpenedAtOnce = 10'000;

/// Logs the timeline's size, and how many layers and micro-batches it shows; then writes it. Throws BadInput naming the
/// flag where the file can't be written.
void write_trace(std::span<const TraceGroup> groups, const TraceFlags& flags);

}  // namespace moe::commands
