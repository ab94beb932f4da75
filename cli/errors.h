#pragma once
// Errors as one line on stderr and an exit code.
#include <functional>
#include <string>

namespace moe {

enum ExitCode : int { kOk = 0, kBadInput = 2, kWrongResult = 3, kRankFailure = 4, kWarned = 5 };

/// A line on stderr, unless another rank that `launch` started has said the same.
void say(const std::string& what);

/// Runs `body` and turns what it throws into a line and its exit code; a defect of the program itself is 1.
int guarded(const std::function<int()>& body);

}  // namespace moe
