#pragma once
// The timeline that `--trace FILE` asks for.
#include <span>
#include <string>

#include "moe/export/chrome_trace.h"

namespace moe::verbs {

/// Throws BadInput where the file holds something that is no timeline: it would be lost.
void require_timeline(const std::string& path);

/// Writes the timeline. Throws BadInput naming the flag where the file can't be written.
void write_trace(std::span<const TraceGroup> groups, const std::string& path);

}  // namespace moe::verbs
