#include "moe/comm/nccl/own_gpus.h"

#include <cstdlib>
#include <map>
#include <string_view>

namespace moe {

std::optional<std::pair<size_t, size_t>> ranks_of_one_gpu(std::span<const std::string> gpus) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty()) continue;
    const auto [owner, is_first] = owners.emplace(gpus[rank], rank);
    if (!is_first) return std::pair(owner->second, rank);
  }
  return std::nullopt;
}

bool may_share_gpus() {
  const char* allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return allowed != nullptr && std::string_view(allowed) == "1";
}

}  // namespace moe
