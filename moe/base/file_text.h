#pragma once
// The contents of whole files, compressed by gzip or not.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "moe/base/check.h"

namespace moe {

/// A file that unpacks to more bytes than set_most_input allows.
class InputTooLarge : public BadInput {
  using BadInput::BadInput;
};

/// Returns what a file or a pipe holds, unpacked where it is packed by gzip, whatever its name. Throws BadInput "PATH:
/// found no readable file, expected EXPECTED" where it can't be read, and for a packed one that is cut off or broken.
/// Throws InputTooLarge.
std::string text_of_file(const std::string& path, std::string_view expected);

/// Returns the CRC-32 of a regular file's bytes, packed or not, as eight hexadecimal digits. Empty for what is no
/// regular file (a pipe, which can be read only once) or can't be read.
std::optional<std::string> file_crc(const std::string& path);
/// Returns the CRC-32 of a text.
std::string crc_of(std::string_view text);

inline constexpr int64_t kDefaultMostInput = int64_t{512} << 20;
/// Sets how many bytes a file may hold, unpacked, from now on: a small file may unpack to more than there is memory.
void set_most_input(int64_t bytes);

/// Returns the first character of a file that is no blank; 0: it has none, or can't be read.
char first_letter(const std::string& path);

/// Returns the path without ".gz" at its end: the name that says what the file holds.
std::string unpacked_name(const std::string& path);

}  // namespace moe
