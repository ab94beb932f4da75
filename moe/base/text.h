#pragma once
// Text from any source, made safe for terminals and shells, and suggestions for misspelt names.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace moe {

// Text from any source that is written to a terminal.

/// Returns the number of bytes of the text's first character; 0 if the text is empty or does not begin with UTF-8.
size_t utf8_size(std::string_view text);

/// Returns the text as one line that can't move a terminal's cursor: control characters, marks that change the writing
/// direction, and bytes that are not UTF-8 become '?'.
std::string printable(std::string_view text);

// Words of command lines that a shell reads.

/// Returns the word unchanged if a shell gives none of its characters a meaning, else in single quotes.
std::string shell_word(const std::string& word);

// Suggestions for misspelt or shortened names.

/// Returns "; did you mean 'A', 'B' or 'C'?" with the known names, three at most, that take the fewest edits: one, or
/// up to a third of the name's letters. An edit adds, drops or changes a letter, or swaps two neighbours. If all names
/// take more, it suggests the shortest names that begin with `name`, contain its words, or begin with its first word;
/// "" if there are none. Case and the characters between words are ignored.
std::string suggestion(std::string_view name, std::span<const std::string_view> known);

}  // namespace moe
