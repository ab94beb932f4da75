#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moe::rules {

// Checks the rules of the source tree for one file: what it may include, how long it and its lines may be, how it is
// named. `path` is relative to the root, with '/'. Returns one line a violation, "path:line: reason"; empty if there is
// none.
std::vector<std::string> violations(const std::string& path, std::string_view text);

}  // namespace moe::rules
