#pragma once
// Which layers of a grid are run for real.
#include <vector>

#include "tuner/sweep.h"

namespace moe {

/// Up to `count` rows, spread evenly over those that can run (GPT experts, a capacity that drops), in grid order: the
/// same for the same grid, always.
std::vector<const SweepRow*> pick_layers(const std::vector<SweepRow>& rows, int count);

}  // namespace moe
