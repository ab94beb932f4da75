#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moe::rules {

// Returns C++ without comments and preprocessor lines: words, numbers, "::" and single signs; a literal is "".
std::vector<std::string> tokens_of(std::string_view text);

inline bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace moe::rules
