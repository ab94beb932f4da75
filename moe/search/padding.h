#pragma once
// Degrees that pad (Rounding::lcm): T_rank is a multiple of both, so that neither
// phase's is decided alone.
#include "moe/search/degrees.h"

namespace moe {

/// tune_degrees of a case whose rows its degrees decide: as good as the best of all pairs.
LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe
