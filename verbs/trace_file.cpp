#include "verbs/trace_file.h"

#include "moe/base/out_file.h"
#include "moe/base/whole_file.h"

namespace moe::verbs {

void require_timeline(const std::string& path) { require_kind(path, kChromeTraceBegins, "timeline"); }

void write_trace(std::span<const TraceGroup> groups, const std::string& path) {
  require_timeline(path);
  write_whole_file(path, "a file for the timeline (--trace)", [&](std::ostream& out) { chrome_trace(groups, out); });
}

}  // namespace moe::verbs
