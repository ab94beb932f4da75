#pragma once
// The timeline that `--trace FILE` asks for.
#include <optional>
#include <span>
#include <string>

#include "moe/export/chrome_trace.h"

namespace moe::verbs {

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

}  // namespace moe::verbs
