#pragma once
// Which version of moetune this is.
#include <string_view>

namespace moe {

/// That of the project in CMakeLists.txt: "0.1.0".
std::string_view version();

}  // namespace moe
