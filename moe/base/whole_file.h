#pragma once
// Files that are written whole: profiles, timelines, tensors, pages. (Records are appended to: moe/record/writer.h.)
#include <functional>
#include <ostream>
#include <span>
#include <string>

namespace moe {

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
