#pragma once
// Text that may come from anywhere, and goes to a terminal.
#include <cstddef>
#include <string>
#include <string_view>

namespace moe {

/// Returns the bytes of the text's first character; 0: they are no UTF-8, or there are none.
size_t utf8_size(std::string_view text);

/// Returns the text as one line that moves no terminal's cursor: control characters, marks that turn the direction of
/// writing, and bytes that are no UTF-8 become '?'.
std::string printable(std::string_view text);

}  // namespace moe
