#pragma once
// Which layers of a grid are run for real.
#include <vector>

#include "tuner/sweep.h"

namespace moe {

/// Up to `count` rows of those that can run (GPT experts, a capacity that drops), in grid order: each next one repeats
/// the fewest values of B, L, M, H / M, f and heads, and pairs of them, that the ones before have. The same for the
/// same grid, always.
std::vector<const SweepRow*> pick_layers(const std::vector<SweepRow>& rows, int count);

}  // namespace moe
