#pragma once
// A layer's shape and its groups for documents that other programs read.
#include <nlohmann/json.hpp>

#include "moe/plan/shape.h"

namespace moe {

/// Returns every field by its name in layer files; capacity_factor null: dropless.
nlohmann::ordered_json layer_json(const LayerShape& layer);
/// Returns nodes, ranks_per_node and the groups' sizes; zero and recompute where a rank does not keep all.
nlohmann::ordered_json group_sizes(const ParallelShape& parallel);

}  // namespace moe
