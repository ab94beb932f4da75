#pragma once
// A gather by Thrust, the library counterpart of the order's kernel.
#include <cstdint>

namespace moe::microbench {

/// The token of each row, and the length of a row: `packs` units of 16 bytes.
struct TokenRows {
  const int32_t* token_of;
  int64_t rows, packs;
};

/// Sets out[i] = tokens[token_of[i]], all in the GPU's memory. `stream`: a cudaStream_t.
void thrust_gather(const void* tokens, const TokenRows& which, void* out, void* stream);

}  // namespace moe::microbench
