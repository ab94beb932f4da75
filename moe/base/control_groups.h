#pragma once
// What the control groups of this process leave it, of both versions: the least of its own group and those above it.
#include <cstdint>
#include <optional>

#include "moe/base/system_files.h"

namespace moe {

/// Returns how many cores' time there is; none: as much as the machine has.
std::optional<double> cpu_quota(const SystemFiles& files = SystemFiles());

struct MemoryLimit {
  double limit_bytes = 0, used_bytes = 0;  // of the group that limits; files that it read count as used
};
/// Returns the tightest limit of memory; none: as much as the machine has.
std::optional<MemoryLimit> memory_limit(const SystemFiles& files = SystemFiles());

}  // namespace moe
