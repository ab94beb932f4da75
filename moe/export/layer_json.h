#pragma once
// Writes a layer's shape and its groups for documents that other programs read.

#include "moe/base/json.h"
#include "moe/plan/shape.h"

namespace moe {

/// Returns every field by its name in layer files; capacity_factor null: dropless.
Json layer_json(const LayerShape& layer);
/// Returns nodes, ranks_per_node and the groups' sizes; zero and recompute where a rank does not keep all.
Json group_sizes(const ParallelShape& parallel);

}  // namespace moe
