#pragma once
// Reports errors as one line on stderr and an exit code.
#include <functional>
#include <string>

#include "moe/base/check.h"

namespace moe::cli {

/// Writes a line on stderr, unless another rank that `launch` started has written the same one.
void report_line(const std::string& what);

/// Runs `body` and turns its exceptions into a line and an exit code; a defect of the program itself is 70.
int run_and_report_errors(const std::function<int()>& body);

}  // namespace moe::cli
