#pragma once
// The allocator of all memory blocks of the host.
#include "moe/device/memory.h"

namespace moe::cpu {

/// Returns a block that is aligned to a cache line, never null, with undefined content. Throws OutOfMemory.
Memory allocate(int64_t bytes);

/// Returns freed memory to the system. The C library would keep most of it: gigabytes in a run that makes one layer
/// after another.
void return_free_memory();

}  // namespace moe::cpu
