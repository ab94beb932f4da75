#pragma once
// What a library has for the order's work.
#include <cstdint>

namespace moe::microbench {

/// rows[i] = tokens[token_of[i]], rows of `packs` times 16 bytes, all in the GPU's memory; on a cudaStream_t.
void thrust_gather(const void* tokens, const int32_t* token_of, int64_t rows, int64_t packs, void* out, void* stream);

}  // namespace moe::microbench
