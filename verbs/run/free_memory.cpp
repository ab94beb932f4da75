#include "verbs/run/free_memory.h"

#include <algorithm>
#include <limits>

#include "moe/base/system_files.h"
#include "moe/device/gpu_settings.h"

namespace moe::verbs {

double free_bytes(const measure::BenchRanks& ranks) {
  if (ranks.device == DeviceKind::cuda) {
    const int gpu = ranks.processes ? ranks.processes->topology().local_rank : 0;
    return ranks.least(static_cast<double>(free_gpu_bytes(gpu)));
  }
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  return ranks.least(memory_bytes(SystemFiles(), "MemAvailable").value_or(kUnknown));
}

int64_t sharers(const measure::BenchRanks& ranks, int64_t all) {
  if (ranks.processes == nullptr) return all;
  if (ranks.device == DeviceKind::cuda) return 1;
  const std::vector<std::string>& addresses = ranks.processes->topology().addresses;
  const auto own = static_cast<size_t>(ranks.processes->here().front());
  return own < addresses.size() ? std::ranges::count(addresses, addresses[own]) : all;
}

}  // namespace moe::verbs
