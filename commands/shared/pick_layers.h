#pragma once
// Choice of the layers of a grid that are run for real.
#include <span>
#include <vector>

#include "moe/shape/grid.h"
#include "moe/shape/shape.h"

namespace moe::commands {

/// Returns up to `count` indices of `layers`, ascending. Each pick is the layer that shares the fewest values of B, L,
/// M, H / M, f, heads and ffn, and pairs of these values, with the earlier picks. The result is deterministic.
std::vector<size_t> pick_layers(std::span<const LayerShape> layers, int count);

// Layers that a grid could have but does not, to test predictions on layers that no measurement contained.

/// Draws `count` layers inside the hull of the grid's layers: each takes heads, experts, k, f, ffn and groups from one
/// of them, and B, L, M and H from between the grid's least and largest values, uniformly on a logarithmic scale, with
/// B a multiple of the least, L and H of 16, M of 16 and of the heads. The seed determines everything.
std::vector<GridLayer> draw_layers(const Grid& grid, int count, uint64_t seed);

}  // namespace moe::commands
