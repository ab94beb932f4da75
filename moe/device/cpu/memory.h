#pragma once
// Allocates all of the host's blocks.
#include "moe/device/memory.h"

namespace moe::cpu {

/// Returns a block that is aligned to a cache line, never null, and holds anything at first. Throws OutOfMemory.
Memory allocate(int64_t bytes);

}  // namespace moe::cpu
