#pragma once
// Words of command lines that a shell reads.
#include <string>

namespace moe {

/// Returns the word as it is where a shell reads nothing into its characters, else in single quotes.
std::string shell_word(const std::string& word);

}  // namespace moe
