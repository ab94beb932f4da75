#pragma once
// Checks that every rank has a GPU of its own, as NCCL wants it.
#include <span>
#include <string>

namespace moe {

/// Throws BadInput that names the first two ranks with the same GPU. `gpus` has what tells each rank's GPU from every
/// other; ranks whose entry is empty have none to tell.
void require_own_gpus(std::span<const std::string> gpus);

}  // namespace moe
