#pragma once
// The terminal that results are printed on.
#include <optional>
#include <string>
#include <string_view>

namespace moe {

/// Returns the width of the output in columns: COLUMNS if it is set, else that of the terminal on stdout, at least 40.
/// Empty: stdout is no terminal, and lines may be of any length.
std::optional<int> output_columns();

/// Returns the width of the output in columns, but at most `most`.
int output_columns_up_to(int most);

/// Breaks a line between words so that it fits the output; what follows is indented by two blanks.
std::string fitted_line(std::string_view line);

}  // namespace moe
