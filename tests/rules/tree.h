#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moe::rules {

struct TreeFile {
  std::string path, text;  // the path from the root, with '/'
};
// Returns the files of the tree that people write and read: no data, whose lines may be of any length, and nothing that
// was built.
std::vector<TreeFile> tree_files();

bool is_source(std::string_view path);

}  // namespace moe::rules
