#pragma once
// How deep values of JSON and TOML may be nested: trees of values are read by recursion.
#include <string>
#include <string_view>

namespace moe {

inline constexpr int kMostLevels = 100;

/// Throws BadInput "PATH:LINE: ..." where tables and lists of a TOML text are nested too deep, or a key has too many
/// parts: the parser itself has no limit for keys.
void check_toml_levels(std::string_view text, const std::string& path);

}  // namespace moe
