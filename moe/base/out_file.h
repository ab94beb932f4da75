#pragma once
// What holds for the files that flags name to write.
#include <string>
#include <vector>

namespace moe {

/// Throws BadInput where `out` is one of the files that are read, by whatever path or link. Empty names are none.
void require_other_file(const std::string& out, const std::vector<std::string>& inputs);

/// Makes the folders above a file. What is in the way is found by who writes it.
void make_folders_above(const std::string& file);

}  // namespace moe
