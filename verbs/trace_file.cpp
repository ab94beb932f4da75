#include "verbs/trace_file.h"

#include <algorithm>
#include <ostream>
#include <streambuf>

#include "moe/base/log.h"
#include "moe/base/out_file.h"
#include "moe/base/units.h"
#include "moe/base/whole_file.h"
#include "moe/plan/pipeline.h"

namespace moe::verbs {
namespace {

// Counts bytes and forgets them.
class ByteCounter : public std::streambuf {
 public:
  int64_t bytes() const { return bytes_; }

 protected:
  int_type overflow(int_type c) override {
    ++bytes_;
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* /*text*/, std::streamsize count) override {
    bytes_ += count;
    return count;
  }

 private:
  int64_t bytes_ = 0;
};

int64_t bytes_of(std::span<const TraceGroup> groups, const TraceExtent& extent) {
  ByteCounter counter;
  std::ostream out(&counter);
  chrome_trace(groups, out, extent);
  return counter.bytes();
}

// Returns the largest numbers of layers of a stage and of micro-batches.
TraceExtent whole_extent(std::span<const TraceGroup> groups) {
  TraceExtent whole{1, 1};
  for (const TraceGroup& group : groups) {
    whole.layers = std::max(whole.layers, layers_in(group.plan->split(), 0));  // has most
    whole.micro_batches = std::max(whole.micro_batches, group.plan->micro_batches);
  }
  return whole;
}

std::string shown_text(std::span<const TraceGroup> groups, const TraceExtent& extent) {
  const TraceExtent whole = whole_extent(groups);
  const bool stages = std::ranges::any_of(groups, [](const auto& g) { return g.plan->shape.parallel.pp > 1; });
  std::string text;
  const auto add = [&](int shown, int count, const std::string& what) {
    if (shown < count) text += fmt::format("{}{} of {} {}", text.empty() ? "" : " and ", shown, count, what);
  };
  add(extent.layers, whole.layers, stages ? "layers of a stage" : "layers");
  add(extent.micro_batches, whole.micro_batches, "micro-batches");
  if (text.empty()) return "";
  return fmt::format("; it shows {}, the first and the last (--trace-layers, --trace-micro-batches: N or all)", text);
}

}  // namespace

void require_timeline(const std::string& path) { require_kind(path, kChromeTraceBegins, "timeline"); }

TraceExtent trace_extent(std::span<const TraceGroup> groups, const TraceFlags& flags) {
  TraceExtent extent = whole_extent(groups);
  if (flags.layers) extent.layers = *flags.layers;
  if (flags.micro_batches) extent.micro_batches = *flags.micro_batches;
  const auto open = [](const std::optional<int>& asked, int& number) {
    return asked || number == 1 ? nullptr : &number;
  };
  while (shown_tasks(groups, extent) > kOpenedAtOnce) {
    int* const layers = open(flags.layers, extent.layers);
    int* const micro_batches = open(flags.micro_batches, extent.micro_batches);
    if (layers == nullptr && micro_batches == nullptr) break;
    const bool cuts_layers = micro_batches == nullptr || (layers != nullptr && *layers >= *micro_batches);
    int& number = cuts_layers ? *layers : *micro_batches;
    number = (number + 1) / 2;
  }
  return extent;
}

void write_trace(std::span<const TraceGroup> groups, const TraceFlags& flags) {
  require_timeline(flags.file);
  const TraceExtent extent = trace_extent(groups, flags);
  log_info(fmt::format("{}: a timeline of {}, {} tasks{}", flags.file,
                       human_bytes(static_cast<double>(bytes_of(groups, extent))), shown_tasks(groups, extent),
                       shown_text(groups, extent)));
  write_whole_file(flags.file, "a file for the timeline (--trace)",
                   [&](std::ostream& out) { chrome_trace(groups, out, extent); });
}

}  // namespace moe::verbs
