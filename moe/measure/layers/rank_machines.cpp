#include "moe/measure/layers/rank_machines.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <fstream>

#include "moe/device/cpu/cores.h"

namespace moe::measure {

std::vector<RankMachine> machines_of(World& world, DeviceKind device, int threads) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");  // a kernel's: containers on one machine read one clock
  std::string boot;
  std::getline(file, boot);
  const std::vector<int> cores = cpu::usable_cores();
  const size_t here = world.here().size();
  const auto names = gather(world, std::vector(here, fmt::format("{} {}", boot, fmt::join(cores, ","))));
  const int on_cpu = std::max(1, static_cast<int>(cores.size()) / threads);
  const double own = device == DeviceKind::cpu ? on_cpu : world.ranks();
  const auto at_once = gather(world, std::vector(here, std::vector{own}));
  std::vector<RankMachine> machines;
  for (size_t rank = 0; rank < names.size(); ++rank)
    machines.push_back({names[rank], static_cast<int>(at_once[rank].front())});
  return machines;
}

std::vector<RankMachine> machines_apart(size_t ranks) {
  std::vector<RankMachine> machines;
  for (size_t rank = 0; rank < ranks; ++rank) machines.push_back({fmt::format("of rank {}", rank), 1});
  return machines;
}

}  // namespace moe::measure
