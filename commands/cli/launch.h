#pragma once
// The verb `launch`: starts the processes of a run on this machine, and sees that all of them end.
#include <string>
#include <vector>

namespace moe::cli {

struct LaunchOptions {
  int ranks = 2;
  double timeout_s = 60;             // of the verb: how long its ranks wait for each other
  std::vector<std::string> command;  // the verb and its flags
};

/// Runs `program command...` once a rank, with the variables that torchrun sets. Once a rank has failed, the others get
/// the time-out to say what they miss; ranks that are stopped get none. A signal that would end this process ends the
/// ranks first; if it is killed, so are they. Returns the exit code: that of bad input, a wrong result or missing
/// hardware where a rank ended with one, else 4 if a rank failed; 128 + the signal. Throws BadInput where no process
/// can be started.
int run_launch(const LaunchOptions& options, const std::string& program);

}  // namespace moe::cli
