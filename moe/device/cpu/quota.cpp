#include "moe/device/cpu/quota.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "moe/base/check.h"

namespace moe::cpu {
namespace {

constexpr int kCoresToSpare = 4;

// Two numbers, "max" is none: of one file, or of one each.
std::optional<double> ratio_of(const std::string& quota_file, const std::string& period_file) {
  std::ifstream of_quota(quota_file), of_period(period_file);
  double quota = 0, period = 0;
  if (!(of_quota >> quota) || !((quota_file == period_file ? of_quota : of_period) >> period)) return {};
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// The group's own, and that of each above it. In a container the path may be the host's, and is not there.
template <class Read>
std::optional<double> least_above(std::string_view group, Read read) {
  std::optional<double> found = read(std::string());
  for (; group.size() > 1; group = group.substr(0, group.rfind('/'))) found = least(found, read(std::string(group)));
  return found;
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> found;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const auto unified = [&](const std::string& group) {
      const std::string file = root + "/sys/fs/cgroup" + group + "/cpu.max";
      return ratio_of(file, file);
    };
    const auto legacy = [&](const std::string& group) {
      const std::string folder = root + "/sys/fs/cgroup/cpu" + group + "/cpu.cfs_";
      return ratio_of(folder + "quota_us", folder + "period_us");
    };
    if (controllers.empty()) found = least(found, least_above(path, unified));
    if (has_word(controllers, "cpu")) found = least(found, least_above(path, legacy));
  }
  return found;
}

int default_threads(const CoreShare& share, const char* omp_num_threads) {
  if (omp_num_threads != nullptr && *omp_num_threads != '\0') {
    const std::string_view text(omp_num_threads);  // "4", or "4,2" by level
    const std::string_view outermost = text.substr(0, text.find(','));
    int threads = 0;
    const auto [end, error] = std::from_chars(outermost.data(), outermost.data() + outermost.size(), threads);
    require<BadInput>(error == std::errc{} && end == outermost.data() + outermost.size() && threads >= 1,
                      "OMP_NUM_THREADS: found '{}', expected a whole number of 1 or more", text);
    return threads;
  }
  const int cores = share.quota ? std::min(share.cores, static_cast<int>(*share.quota)) : share.cores;
  const int own = cores / share.sharers;
  return std::max(1, share.communicates && own >= kCoresToSpare ? own - 1 : own);
}

}  // namespace moe::cpu
