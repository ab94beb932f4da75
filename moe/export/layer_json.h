#pragma once
// A layer's shape for documents that other programs read.
#include <nlohmann/json.hpp>

#include "moe/plan/shape.h"

namespace moe {

/// Returns every field by its name in layer files; capacity_factor null: dropless.
nlohmann::ordered_json layer_json(const LayerShape& layer);

}  // namespace moe
