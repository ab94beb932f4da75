#pragma once
// Random costs of an MoE part: every operation is at times the bottleneck, by its start-up times or by its volume.
#include <cstdint>

#include "moe/search/algorithm1.h"

namespace moe::algorithm1_draws {

/// Returns costs by seed and index alone; the odd ones have gradients. `even_handed`: AllGather and ReduceScatter cost
/// the same.
PhaseCosts random_costs(uint64_t seed, uint64_t index, bool even_handed);

}  // namespace moe::algorithm1_draws
