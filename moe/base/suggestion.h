#pragma once
// Guesses what a misspelt or shortened name was meant to be.
#include <span>
#include <string>
#include <string_view>

namespace moe {

/// Returns "; did you mean 'A', 'B' or 'C'?" with the known names, three at most, that take the fewest edits: one, or
/// up to a third of the name's letters. An edit adds, drops or changes a letter, or swaps two neighbours. Where all
/// take more, it names the shortest names that it begins, whose parts it names, or that begin with its first word; ""
/// where there are none. Letters count alike in both cases, and what stands between words does not count.
std::string suggestion(std::string_view name, std::span<const std::string_view> known);

}  // namespace moe
