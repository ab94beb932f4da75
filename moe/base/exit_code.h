#pragma once
// What a process ends with.

namespace moe {

/// kRegression: something is slower, confirmed. kAmbiguous: it may be, and --strict was asked. kNoHardware: what it
/// needs is not in this machine; CTest shows a skip.
enum ExitCode : int {
  kOk = 0,
  kRegression = 1,
  kBadInput = 2,
  kWrongResult = 3,
  kRankFailure = 4,
  kAmbiguous = 5,
  kNoHardware = 77
};

}  // namespace moe
