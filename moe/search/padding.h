#pragma once
// Tunes degrees that pad (Rounding::lcm): T_rank is a multiple of both, so that neither phase's is decided
// alone.
#include "moe/search/degrees.h"

namespace moe::search {

/// Does what tune_degrees() does for a case whose rows its degrees decide; the result is as good as the best of all
/// pairs.
LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe::search
