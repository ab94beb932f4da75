#pragma once
// Files that may be compressed by gzip.
#include <string>

namespace moe::exchange {

/// Returns the text of a file, decompressed where it is gzip's. Throws BadInput naming it where it can't be read or is
/// cut off.
std::string text_of_file(const std::string& path);

}  // namespace moe::exchange
