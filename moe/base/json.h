#pragma once
// JSON as our documents have it: keys stay in the order in which they were set.
#include <nlohmann/json.hpp>

namespace moe {

using Json = nlohmann::ordered_json;

}  // namespace moe
