#pragma once
// Shell completion, derived from the verbs and flags themselves, so that it is always complete.
#include <string>
#include <vector>

namespace moe::cli {

/// Returns the words that can complete the end of `line`, a command line up to the cursor: verbs, flags, or the values
/// of the preceding flag's type. Returns none if any word or a path is allowed there.
std::vector<std::string> completions(const std::string& line);

}  // namespace moe::cli
