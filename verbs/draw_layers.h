#pragma once
// Layers that a grid does not hold, but could: for predictions of what was in no measurement.
#include <vector>

#include "moe/plan/grid.h"

namespace moe::verbs {

/// Draws `count` layers inside the hull of the grid's: each takes its heads, experts, k, f, ffn and groups from one of
/// the grid's layers, and B, L, M and H from anywhere between the grid's least and greatest, evenly on a logarithmic
/// scale: B a multiple of the least, L and H of 16, M of 16 and of the heads. The seed decides all.
std::vector<GridLayer> draw_layers(const Grid& grid, int count, uint64_t seed);

}  // namespace moe::verbs
