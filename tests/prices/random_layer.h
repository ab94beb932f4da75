#pragma once
// Random layers, parallel shapes and profiles: all network layouts, every operation at times the bottleneck.
#include <cstdint>
#include <string>

#include "moe/prices/pricer.h"

namespace moe::random_layer {

struct RandomLayer {
  Profile profile;
  LayerCase shape;
  std::string text;  // the seed and what was drawn, for failures
};

/// Returns a layer by the seed alone. Gradients are few (at most some hundred elements), so that every split can be
/// tried. `measured`: the collectives are priced by measured curves, which rise but are not straight.
RandomLayer random_layer(uint64_t seed, bool measured = false);
/// Returns the same layer, its lanes slowing each other down: a factor of 1 for some pairs, up to 3 for the others.
RandomLayer contended(RandomLayer layer, uint64_t seed);

}  // namespace moe::random_layer
