#pragma once
// Text that may come from anywhere and goes to terminals and shells, and guesses what a misspelt name was meant to
// be.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace moe {

// Text that may come from anywhere, and goes to a terminal.

/// Returns the bytes of the text's first character; 0: they are no UTF-8, or there are none.
size_t utf8_size(std::string_view text);

/// Returns the text as one line that moves no terminal's cursor: control characters, marks that turn the direction of
/// writing, and bytes that are no UTF-8 become '?'.
std::string printable(std::string_view text);

// Words of command lines that a shell reads.

/// Returns the word as it is where a shell reads nothing into its characters, else in single quotes.
std::string shell_word(const std::string& word);

// Guesses what a misspelt or shortened name was meant to be.

/// Returns "; did you mean 'A', 'B' or 'C'?" with the known names, three at most, that take the fewest edits: one, or
/// up to a third of the name's letters. An edit adds, drops or changes a letter, or swaps two neighbours. Where all
/// take more, it names the shortest names that it begins, whose parts it names, or that begin with its first word; ""
/// where there are none. Letters count alike in both cases, and what stands between words does not count.
std::string suggestion(std::string_view name, std::span<const std::string_view> known);

}  // namespace moe
