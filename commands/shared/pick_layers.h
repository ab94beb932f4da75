#pragma once
// Which layers of a grid are run for real.
#include <span>
#include <vector>

#include "moe/shape/grid.h"
#include "moe/shape/shape.h"

namespace moe::commands {

/// Returns up to `count` indices of `layers`, ascending. Each pick is the layer that shares the fewest values of B, L,
/// M, H / M, f, heads and ffn, and pairs of these values, with the earlier picks. The result is deterministic.
std::vector<size_t> pick_layers(std::span<const LayerShape> layers, int count);

// Layers that a grid does not hold, but could: for predictions of what was in no measurement.

/// Draws `count` layers inside the hull of the grid's: each takes its heads, experts, k, f, ffn and groups from one of
/// the grid's layers, and B, L, M and H from anywhere between the grid's least and greatest, evenly on a logarithmic
/// scale: B a multiple of the least, L and H of 16, M of 16 and of the heads. The seed decides all.
std::vector<GridLayer> draw_layers(const Grid& grid, int count, uint64_t seed);

}  // namespace moe::commands
