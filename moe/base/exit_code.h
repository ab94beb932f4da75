#pragma once
// The codes with which a process ends.

namespace moe {

/// Says how a process ended. kRegression: something is slower, confirmed. kDoubtful: --strict was asked, and a case is
/// ambiguous or the machine has a warning. kDefect: the program itself is at fault. kNoHardware: what it needs is not
/// in this machine; CTest shows a skip.
enum ExitCode : int {
  kOk = 0,
  kRegression = 1,
  kBadInput = 2,
  kWrongResult = 3,
  kRankFailure = 4,
  kDoubtful = 5,
  kDefect = 70,
  kNoHardware = 77
};

}  // namespace moe
