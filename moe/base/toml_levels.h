#pragma once
#include <string>
#include <string_view>

namespace moe {

/// Throws BadInput "PATH:LINE: ..." where tables and lists of a TOML text are nested too deep, or a key has too many
/// parts: the parser itself has no limit for keys.
void check_toml_levels(std::string_view text, const std::string& path);

}  // namespace moe
