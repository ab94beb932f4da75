#pragma once
// Errors as one line on stderr and an exit code.
#include <functional>

namespace moe {

enum ExitCode : int { kOk = 0, kBadInput = 2, kWrongResult = 3, kRankFailure = 4 };

/// Runs `body` and turns what it throws into a line and its exit code; a defect of the program itself is 1.
int guarded(const std::function<int()>& body);

}  // namespace moe
