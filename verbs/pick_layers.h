#pragma once
// Which layers of a grid are run for real.
#include <span>
#include <vector>

#include "moe/plan/shape.h"

namespace moe::verbs {

/// Returns up to `count` indices of `layers`, ascending: each next pick repeats the fewest values of B, L, M, H / M, f,
/// heads and ffn, and pairs of them, that the ones before have. The same layers always give the same picks.
std::vector<size_t> pick_layers(std::span<const LayerShape> layers, int count);

}  // namespace moe::verbs
