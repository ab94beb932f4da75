#pragma once
// What a shell may offer next, read off the verbs and flags themselves, so that it knows them all and no other.
#include <string>
#include <vector>

namespace moe::cli {

/// Returns the words that may stand where `line`, a command line up to the cursor, ends: verbs, flags, or what the type
/// of the flag before says. Returns none where anything may stand there, or a path.
std::vector<std::string> completions(const std::string& line);

}  // namespace moe::cli
