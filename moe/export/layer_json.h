#pragma once
// A layer's shape and its groups in documents that other programs read, and back.

#include "moe/base/json.h"
#include "moe/plan/layer_file.h"

namespace moe {

/// Returns every field by its name in layer files; capacity_factor null: dropless.
Json layer_json(const LayerShape& layer);
/// Returns nodes, ranks_per_node and the groups' sizes; zero and recompute where a rank does not keep all.
Json group_sizes(const ParallelShape& parallel);

/// The keys of a document's layer, with how its rows are rounded, and of its groups, with their placement.
inline constexpr auto kCaseLayerKeys = with(kLayerKeys, {"capacity_rounding"});
inline constexpr auto kCaseGroupKeys = with(kParallelKeys, {"nodes", "ranks_per_node", "edp", "zero", "recompute"});

/// Reads what a document has of a layer and its groups; both may be one object. Throws BadInput where a key of a size,
/// of a part or of a group is missing, which files may leave out, and where these don't fit together.
LayerCase read_case(const TableReader& layer, const TableReader& groups);

}  // namespace moe
