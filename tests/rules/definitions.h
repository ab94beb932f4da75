#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moe::rules {

// Returns what a source defines that other sources of its program see under the same name: types, functions with the
// types of their parameters, inline variables; "moe::Ranking", "moe::share(const Site&)". Leaves out unnamed namespaces
// and what is static. Reads C++ as this tree writes it: macros are taken for what they look like.
std::vector<std::string> external_definitions(std::string_view text);

// Returns whether a file stands in for another one: a program links one of them, so both define the same.
bool is_stand_in(std::string_view path);

}  // namespace moe::rules
