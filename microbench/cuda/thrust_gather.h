#pragma once
// A gather by Thrust: what a library has for the order's work.
#include <cstdint>

namespace moe::microbench {

/// Rows of `packs` times 16 bytes, and which token each is.
struct TokenRows {
  const int32_t* token_of;
  int64_t rows, packs;
};

/// Sets out[i] = tokens[token_of[i]], all in the GPU's memory, on `stream`, a cudaStream_t.
void thrust_gather(const void* tokens, const TokenRows& which, void* out, void* stream);

}  // namespace moe::microbench
