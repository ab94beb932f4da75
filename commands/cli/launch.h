#pragma once
// The verb `launch`: starts the processes of a run on this machine and makes sure that all of them end.
#include <string>
#include <vector>

namespace moe::cli {

struct LaunchOptions {
  int ranks = 2;
  double timeout_s = 60;             // longest wait in seconds of a rank for another, --timeout of the verb
  std::vector<std::string> command;  // the verb and its flags
};

/// Runs `program command...` once for each rank, with the variables that torchrun sets. After a rank has failed, the
/// others have the time-out to report what they miss; stopped ranks have none. If a signal ends this process, it ends
/// the ranks first; if it is killed, the ranks are killed too. Returns the exit code: 128 + the signal, or that of bad
/// input, a wrong result or missing hardware if a rank ended with one, else 4 if a rank failed. Throws BadInput if no
/// process can be started.
int run_launch(const LaunchOptions& options, const std::string& program);

}  // namespace moe::cli
