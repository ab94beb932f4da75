#include "moe/base/control_groups.h"

#include <fmt/format.h>
#include <sstream>

namespace moe {
namespace {

constexpr double kNoLimitBytes = 0x1p62;  // version 1 has no word for none: it says the largest number of pages

// Calls `read` with the folder of the group that has the controller, and with those above it. In a container the path
// may be the host's, and is not there.
template <class Read>
void for_groups(const SystemFiles& files, const std::string& controller, Read read) {
  std::istringstream groups(files.text("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    read(unified, root);
    for (std::string path = line.substr(second + 1); path.size() > 1 && path[0] == '/'; path.resize(path.rfind('/')))
      read(unified, root + path);
  }
}

// Returns a group's quota: "150000 100000" or, of version 1, a file each; a quota of "max" or -1 is none.
std::optional<double> quota_of(const SystemFiles& files, bool unified, const std::string& group) {
  std::optional<double> quota, period;
  if (unified) {
    const auto words = words_in(files.text(group + "/cpu.max").value_or(""));
    if (words.size() == 2) quota = leading_number(words[0]), period = leading_number(words[1]);
  } else {
    quota = files.number(group + "/cpu.cfs_quota_us");
    period = files.number(group + "/cpu.cfs_period_us");
  }
  return quota && period && *quota > 0 && *period > 0 ? std::optional(*quota / *period) : std::nullopt;
}

}  // namespace

std::optional<double> cpu_quota(const SystemFiles& files) {
  std::optional<double> least;
  for_groups(files, "cpu", [&](bool unified, const std::string& group) {
    const auto quota = quota_of(files, unified, group);
    if (quota && (!least || *quota < *least)) least = quota;
  });
  return least;
}

std::optional<MemoryLimit> memory_limit(const SystemFiles& files) {
  std::optional<MemoryLimit> least;
  for_groups(files, "memory", [&](bool unified, const std::string& group) {
    const auto limit = files.number(group + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    if (!limit || *limit <= 0 || *limit >= kNoLimitBytes || (least && least->limit_bytes <= *limit)) return;
    const auto used = files.number(group + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    least = MemoryLimit{*limit, used.value_or(0)};
  });
  return least;
}

}  // namespace moe
