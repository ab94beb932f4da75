#pragma once
// YAML as the tree of moe/base/config.h.
#include <string>
#include <string_view>

#include "moe/base/config.h"

namespace moe::commands {

/// Parses the one document of a text, whose root is a mapping. Plain scalars have the types that PyYAML gives them, and
/// merge keys (<<) are merged; other tags than !!str are ignored. `path` is for messages. Throws BadInput
/// "PATH:LINE: ..." for bad syntax, a key that is there twice, and what is nested too deep or expands to too much.
ConfigFile parse_yaml(std::string_view text, const std::string& path);

}  // namespace moe::commands
