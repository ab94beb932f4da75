#pragma once
// A gather by Thrust, the library counterpart of the order's kernel.
#include <cstdint>

namespace moe::microbench {

/// Rows of `packs` times 16 bytes, and the token of each row.
struct TokenRows {
  const int32_t* token_of;
  int64_t rows, packs;
};

/// Sets out[i] = tokens[token_of[i]], all in the GPU's memory. `stream`: a cudaStream_t.
void thrust_gather(const void* tokens, const TokenRows& which, void* out, void* stream);

}  // namespace moe::microbench
