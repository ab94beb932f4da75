#include <algorithm>
#include <fmt/format.h>

#include "doctor/probes.h"
#include "moe/base/control_groups.h"
#include "moe/base/units.h"

namespace moe::doctor {
namespace {

constexpr double kLittleLeft = 0.1;  // of the memory, or of a limit
constexpr double kSwapNoticed = 64.0 * kMiB;

constexpr Area kMemory{"memory"};

Findings left(const SystemFiles& files) {
  const auto total = memory_bytes(files, "MemTotal"), free = memory_bytes(files, "MemAvailable");
  if (!total || !free || *total <= 0) return {};
  const std::string found = fmt::format("{} of {} free", human_bytes(*free), human_bytes(*total));
  if (*free < kLittleLeft * *total)
    return {kMemory(Level::warn, found, "layers may not fit, and pages are reclaimed meanwhile",
                    "ps -eo rss,comm --sort -rss | head")};
  return {kMemory(Level::ok, found, "nothing has to be reclaimed")};
}

Findings limit(const SystemFiles& files) {
  const auto limit = memory_limit(files);
  if (!limit || limit->limit_bytes >= memory_bytes(files, "MemTotal").value_or(limit->limit_bytes + 1))
    return {kMemory(Level::ok, "no limit of memory", "all of the machine's")};
  const double free = limit->limit_bytes - limit->used_bytes;
  const std::string found = fmt::format("control group: at most {}, {} used", human_bytes(limit->limit_bytes),
                                        human_bytes(limit->used_bytes));
  if (free < kLittleLeft * limit->limit_bytes)
    return {kMemory(Level::warn, found, "what takes more is killed; near it pages are reclaimed",
                    "docker update --memory N CONTAINER  (Kubernetes: limits.memory; systemd: MemoryMax=)")};
  return {kMemory(Level::note, found, "what takes more is killed")};
}

Findings swap(const SystemFiles& files) {
  const auto total = memory_bytes(files, "SwapTotal"), free = memory_bytes(files, "SwapFree");
  if (!total || !free) return {};
  const double used = *total - *free;
  if (used <= 0) return {kMemory(Level::ok, "no swap in use", "no page is on a disk")};
  return {kMemory(used > kSwapNoticed ? Level::warn : Level::note, human_bytes(used) + " swapped out",
                  "the first touch of such a page waits for the disk", "sudo swapoff -a")};
}

/// Returns the word in brackets: "always [madvise] never".
std::string chosen(const std::string& words) {
  const size_t open = words.find('['), close = words.find(']', std::min(open, words.size()));
  return open == std::string::npos || close == std::string::npos ? "" : words.substr(open + 1, close - open - 1);
}

Findings huge_pages(const SystemFiles& files) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  const std::string enabled = chosen(files.text(folder + "enabled").value_or(""));
  const std::string defrag = chosen(files.text(folder + "defrag").value_or(""));
  if (enabled.empty()) return {};
  Findings all;
  if (enabled == "always")
    all.push_back(kMemory(Level::note, "transparent huge pages: always",
                          "large tensors gain; a daemon moves pages meanwhile",
                          "echo madvise | sudo tee " + folder + "enabled"));
  else
    all.push_back(kMemory(Level::ok, "transparent huge pages: " + enabled, "only where a program asks, if at all"));
  if (enabled != "never" && defrag == "always")
    all.push_back(kMemory(Level::note, "huge pages: defrag always", "an allocation may wait until pages were moved",
                          "echo madvise | sudo tee " + folder + "defrag"));
  return all;
}

}  // namespace

Findings memory_findings(const SystemFiles& files) {
  Findings all;
  for (const auto probe : {left, limit, swap, huge_pages})
    for (Finding& one : probe(files)) all.push_back(std::move(one));
  return all;
}

}  // namespace moe::doctor
