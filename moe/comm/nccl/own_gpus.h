#pragma once
// Checks whether every rank has a separate GPU, which NCCL requires by default.
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace moe {

/// Returns the first two ranks with the same GPU; nullopt if no two share one. `gpus[i]` identifies the GPU of rank i;
/// ranks with an empty identifier are not compared.
std::optional<std::pair<size_t, size_t>> ranks_of_one_gpu(std::span<const std::string> gpus);

/// Returns whether the environment lets NCCL, 2.30 or later, put several ranks on one GPU (NCCL_MULTI_RANK_GPU_ENABLE).
bool may_share_gpus();

}  // namespace moe
