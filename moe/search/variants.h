#pragma once
// Tunes schedules that choose: among others (parm, monta), or how many experts a device holds (lina-packed).
#include "moe/search/layer_search.h"

namespace moe {

/// Returns the best of the schedule's variants: by Parm's own rule, or (monta) the one that takes least.
LayerResult tune_variants(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          const DegreeChoice& choice);
/// Returns a packing schedule's layer with 1, 2, 4 .. experts a device (Decision::packing), as far as Lina's rule goes
/// and memory holds them.
std::vector<LayerResult> tune_packings(search::LayerReplay layer, DegreeChoice choice);
/// Returns the best of tune_packings().
LayerResult tune_packed(search::LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe
