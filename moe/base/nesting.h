#pragma once

namespace moe {

/// Levels of nested values in JSON and TOML: trees of values are read by recursion.
inline constexpr int kMostLevels = 100;

}  // namespace moe
