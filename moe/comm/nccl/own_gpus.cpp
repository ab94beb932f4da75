#include "moe/comm/nccl/own_gpus.h"

#include <map>

#include "moe/base/check.h"

namespace moe {

void require_own_gpus(std::span<const std::string> gpus) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty()) continue;
    const auto [owner, is_first] = owners.emplace(gpus[rank], rank);
    require<BadInput>(is_first, "NCCL: found ranks {} and {} on the same GPU, expected one for each of {} ranks",
                      owner->second, rank, gpus.size());
  }
}

}  // namespace moe
