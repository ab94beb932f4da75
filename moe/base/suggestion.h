#pragma once
// What a misspelt name may have been meant to be.
#include <span>
#include <string>
#include <string_view>

namespace moe {

/// Returns "; did you mean 'NAME'?" with the known name that takes the fewest edits: one, or up to a third
/// of its letters; "" where all take more. An edit adds, drops or changes a letter, or swaps two neighbours.
std::string suggestion(std::string_view name, std::span<const std::string_view> known);

}  // namespace moe
