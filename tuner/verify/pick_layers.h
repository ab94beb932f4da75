#pragma once
// Which layers of a grid are run for real.
#include <vector>

#include "tuner/sweep.h"

namespace moe {

/// Up to `count` rows of those that were planned, in grid order: each next one repeats the fewest values of B, L, M,
/// H / M, f, heads and ffn, and pairs of them, that the ones before have. The same for the same grid, always.
std::vector<const SweepRow*> pick_layers(const std::vector<SweepRow>& rows, int count);

}  // namespace moe
