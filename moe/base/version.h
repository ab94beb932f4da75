#pragma once
// The version of moetune.
#include <string_view>

namespace moe {

/// Returns the version of the project in CMakeLists.txt: "0.1.0".
std::string_view version();

}  // namespace moe
