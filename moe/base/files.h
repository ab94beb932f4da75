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

/// A file that unpacks to more bytes than set_max_input_bytes allows.
class InputTooLarge : public BadInput {
  using BadInput::BadInput;
};

/// Returns the contents of a file or a pipe, unpacked if they are gzip data, whatever the name. Throws BadInput "PATH:
/// found no readable file, expected EXPECTED" if it can't be read, and BadInput for gzip data that are cut off or
/// broken. Throws InputTooLarge.
std::string text_of_file(const std::string& path, std::string_view expected);

/// Returns the CRC-32 of a regular file's bytes as they are stored, as eight hexadecimal digits. Empty if it is not a
/// regular file (a pipe can be read only once) or can't be read.
std::optional<std::string> file_crc(const std::string& path);
/// Returns the CRC-32 of a text.
std::string crc_of(std::string_view text);

inline constexpr int64_t kDefaultMaxInputBytes = int64_t{512} << 20;
/// Sets the most bytes that a file may have, unpacked, because a small file may unpack to more than fits in memory.
void set_max_input_bytes(int64_t bytes);

/// Returns the first character of a file that is not blank; 0 if there is none, or if the file can't be read.
char first_letter(const std::string& path);

/// Returns the path without ".gz" at its end, because the name before it tells the kind of contents.
std::string without_gz_suffix(const std::string& path);

// Checks of the files that flags name to write.

/// Throws BadInput if `out` is one of the files in `inputs`, by whatever path or link. Empty names are ignored.
void require_other_file(const std::string& out, const std::vector<std::string>& inputs);

/// Throws BadInput if `out` is a file of another kind than `kind`, whose files begin with `beginning`. So the records
/// or the cluster of the same command are not replaced by mistake.
void require_kind(const std::string& out, std::string_view beginning, std::string_view kind);

/// Returns the first `bytes` bytes of a file, or all of a shorter one; empty if it is not a regular file.
std::string beginning_of(const std::string& path, size_t bytes);

/// The file or its folder cannot be written.
class Unwritable : public BadInput {
  using BadInput::BadInput;
};

/// Makes the folders above a file. Throws Unwritable naming the folder that does not allow new folders; other errors
/// surface when the file is opened.
void make_folders_above(const std::string& file);

// Files that are written whole: profiles, timelines, tensors, pages. (Records are appended to: moe/record/writer.h.)

/// Writes the file `path` with `write`. Readers find the old file or all of the new one: the text goes to a temporary
/// file in the same folder, which replaces the old file at the end, with its rights and owner, and which is removed if
/// anything fails or throws. A symbolic link stays, and its target is written, whether or not it exists. Anything but a
/// regular file (a pipe, a terminal, /dev/null, a descriptor of ours under /dev/fd) is written directly. So is a file
/// whose folder allows no new files or does not let us replace the file; then `write` may be called twice. Records are
/// never replaced, because they are appended to. Throws BadInput "PATH: cannot be written (why), expected WHAT" for a
/// folder, a missing folder, a write-protected file, a full device, and for records; then the old file is unchanged.
/// `what`: "a file for the profile".
void write_whole_file(const std::string& path, const std::string& what,
                      const std::function<void(std::ostream&)>& write);

/// A file or folder that a flag names and that is written when the work is done.
struct OutTarget {
  std::string flag, path;
  bool is_folder = false;
};

/// Makes the folders and checks that the files can be written, without changing any. Throws BadInput naming the flag,
/// the path and the reason before anything is measured.
void require_targets(std::span<const OutTarget> targets);

/// Throws BadInput naming both flags if two of them name the same file, new or regular.
void require_distinct(std::span<const OutTarget> targets);

}  // namespace moe
