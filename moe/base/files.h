#pragma once
// Files that are read or written whole, compressed by gzip or not, and checks of the paths that flags name.
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"

namespace moe {

// The contents of whole files, compressed by gzip or not.

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

// Checks of the files that flags name to write.

/// Throws BadInput where `out` is one of the files that are read, by whatever path or link. Empty names are none.
void require_other_file(const std::string& out, const std::vector<std::string>& inputs);

/// Throws BadInput where `out` is a file that holds something else than the `kind` that would replace it, of which each
/// begins with `beginning`: such as the records or the cluster of the same command.
void require_kind(const std::string& out, std::string_view beginning, std::string_view kind);

/// Returns the first bytes of a file, fewer of a shorter one; none of what is no regular file.
std::string beginning_of(const std::string& path, size_t bytes);

/// The file or its folder cannot be written.
class Unwritable : public BadInput {
  using BadInput::BadInput;
};

/// Makes the folders above a file. Throws Unwritable naming the folder in which none may be made; other errors surface
/// when the file is opened.
void make_folders_above(const std::string& file);

// Files that are written whole: profiles, timelines, tensors, pages. (Records are appended to: moe/record/writer.h.)

/// Lets `write` fill the file `path`. Readers find the old file or all of the new one: the text goes to a file of a
/// name of its own in the same folder, which takes the old one's place, rights and owner at the end, and is removed
/// where anything fails or throws. A symbolic link stays: the file that it names is written, be it there already or
/// not. What is no regular file (a pipe, a terminal, /dev/null, a descriptor of ours under /dev/fd) is written
/// directly; so is a file in a folder that takes no new ones, or lets us replace none: then `write` may be called
/// twice. Records are never replaced: they are appended to. Throws BadInput "PATH: cannot be written (why), expected
/// WHAT" for a folder, a folder that does not exist, a write-protected file, or a device that is full, and for records;
/// then the old file is as it was. `what`: "a file for the profile".
void write_whole_file(const std::string& path, const std::string& what,
                      const std::function<void(std::ostream&)>& write);

/// A file or folder that a flag names to be written when the work is done.
struct OutTarget {
  std::string flag, path;
  bool is_folder = false;
};

/// Makes the folders, and checks that the files can be written, without changing any. Throws BadInput naming flag, path
/// and why, so that nothing is measured in vain.
void require_targets(std::span<const OutTarget> targets);

/// Throws BadInput naming both flags where two of them name one file, new or regular.
void require_distinct(std::span<const OutTarget> targets);

}  // namespace moe
