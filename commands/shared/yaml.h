#pragma once
// Parses YAML into the tree of moe/base/config.h.
#include <string>
#include <string_view>

#include "moe/base/config.h"

namespace moe::commands {

/// Parses a text with a single document whose root is a mapping. Plain scalars have the types that PyYAML gives them,
/// and merge keys (<<) are merged; tags other than !!str are ignored. `path` is for messages. Throws BadInput
/// "PATH:LINE: ..." for bad syntax, a repeated key, and values that are nested too deep or expand too far.
ConfigFile parse_yaml(std::string_view text, const std::string& path);

}  // namespace moe::commands
