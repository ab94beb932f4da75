#pragma once
// Finds which ranks share a clock and cores.
#include <string>
#include <vector>

#include "moe/comm/world.h"
#include "moe/device/kind.h"

namespace moe::measure {

struct RankMachine {
  std::string name;
  int ranks_at_once = 1;  // that its cores can carry
};

/// Returns each rank's machine, or the part of it that its process is kept to. `threads`: that a rank computes with.
/// Ranks on GPUs share no core. Every process of the world calls it.
std::vector<RankMachine> machines_of(World& world, DeviceKind device, int threads);
/// Returns a machine of its own for each of so many ranks, for where paces say what tasks take.
std::vector<RankMachine> machines_apart(size_t ranks);

}  // namespace moe::measure
