#pragma once
// Which ranks share a machine, its clock and its cores.
#include <string>
#include <vector>

#include "moe/comm/world.h"

namespace moe {

struct RankMachine {
  std::string name;
  int cores = 1;
};

/// Returns each rank's machine. Every process of the world calls it.
std::vector<RankMachine> machines_of(World& world);
/// Returns as many machines of one rank each: where paces say what tasks take.
std::vector<RankMachine> machines_apart(size_t ranks);

}  // namespace moe
