#pragma once
// Allocates all of the host's blocks.
#include "moe/device/memory.h"

namespace moe::cpu {

/// Returns a block that is aligned to a cache line, never null, and holds anything at first. Throws OutOfMemory.
Memory allocate(int64_t bytes);

/// Gives what was freed back to the system. The C library keeps most of it, gigabytes where a run makes layers one
/// after the other.
void return_free_memory();

}  // namespace moe::cpu
