#include "verbs/run/free_memory.h"

#include <algorithm>
#include <limits>

#include "moe/base/system_files.h"
#include "moe/device/gpu_settings.h"

namespace moe::verbs {

double free_bytes(const measure::BenchRanks& ranks) {
  World* processes = ranks.processes;
  const auto here = [&] {
    if (ranks.device == DeviceKind::cuda)
      return static_cast<double>(free_gpu_bytes(processes ? processes->topology().local_rank : 0));
    return memory_bytes(SystemFiles(), "MemAvailable").value_or(std::numeric_limits<double>::infinity());
  };
  double least = here();
  if (processes)
    for (const auto& of_rank : gather(*processes, std::vector<std::vector<double>>{{least}}))
      least = std::min(least, of_rank.front());
  return least;
}

int64_t sharers(const measure::BenchRanks& ranks, int64_t all) {
  if (ranks.processes == nullptr) return all;
  if (ranks.device == DeviceKind::cuda) return 1;
  const std::vector<std::string>& addresses = ranks.processes->topology().addresses;
  const auto own = static_cast<size_t>(ranks.processes->here().front());
  return own < addresses.size() ? std::ranges::count(addresses, addresses[own]) : all;
}

}  // namespace moe::verbs
