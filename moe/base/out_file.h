#pragma once
// Checks of the files that flags name to write.
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"

namespace moe {

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

}  // namespace moe
