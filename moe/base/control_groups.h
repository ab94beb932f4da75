#pragma once
// Reads what the control groups of this process, of both versions, leave it: the least of its own group and those
// above.
#include <cstdint>
#include <optional>

#include "moe/base/system_files.h"

namespace moe {

/// Returns how many cores' time this process may use; none: as much as the machine has.
std::optional<double> cpu_quota(const SystemFiles& files = SystemFiles());

struct MemoryLimit {
  double limit_bytes = 0, used_bytes = 0;  // of the group that limits; files that it read count as used
};
/// Returns the tightest limit of memory; none: nothing limits it but the machine.
std::optional<MemoryLimit> memory_limit(const SystemFiles& files = SystemFiles());

}  // namespace moe
