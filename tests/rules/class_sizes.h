#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/rules/tree.h"

namespace moe::rules {

// Lines of each class, its body and its members' definitions in all files of its folder: "moe/cost/FluidReplay" -> 219.
// Reads the tree as clang-format leaves it: what opens at the first column is closed there.
std::map<std::string, int> class_sizes(const std::vector<TreeFile>& files);

}  // namespace moe::rules
