#include "moe/measure/layers/rank_machines.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <thread>

namespace moe {

std::vector<RankMachine> machines_of(World& world) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");  // a kernel's: containers on one machine read one clock
  std::string boot;
  std::getline(file, boot);
  const size_t here = world.here().size();
  const std::vector<std::string> names = gather(world, std::vector<std::string>(here, boot));
  const std::vector<double> own{std::max(1.0, static_cast<double>(std::thread::hardware_concurrency()))};
  const auto cores = gather(world, std::vector<std::vector<double>>(here, own));
  std::vector<RankMachine> machines;
  for (size_t rank = 0; rank < names.size(); ++rank)
    machines.push_back({names[rank], static_cast<int>(cores[rank].front())});
  return machines;
}

std::vector<RankMachine> machines_apart(size_t ranks) {
  std::vector<RankMachine> machines;
  for (size_t rank = 0; rank < ranks; ++rank) machines.push_back({fmt::format("of rank {}", rank), 1});
  return machines;
}

}  // namespace moe
