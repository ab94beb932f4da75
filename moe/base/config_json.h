#pragma once
// JSON as a configuration's tree.
#include "moe/base/config.h"
#include "moe/base/json.h"

namespace moe {

/// Returns the tree of an object; `path` is for messages. Throws BadInput for what is none.
ConfigFile config_of(const Json& object, const std::string& path);

}  // namespace moe
