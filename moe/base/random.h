#pragma once
// Counter-based random numbers: a value depends only on (seed, stream, index), not on earlier calls.
#include <cstdint>
#include <string_view>

namespace moe {

/// Returns a stream number for a name ("w1", "gate noise"), the same on every machine.
uint64_t random_stream_id(std::string_view name, uint64_t layer = 0);

/// Returns 64 well-mixed bits.
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);
/// Returns a number from the uniform distribution on [0, 1).
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/// Returns a number from the standard normal distribution.
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace moe
