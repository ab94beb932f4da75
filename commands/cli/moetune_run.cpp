// The executable of the verbs that run layers; `moetune` starts it.
#include <cstdlib>

#include "commands/cli/errors.h"
#include "commands/cli/flags.h"
#include "commands/cli/processes.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/terminal.h"
#include "moe/device/device.h"
#include "tuner/tune.h"

namespace moe::cli {
namespace {

constexpr RunVerbs kHalf{microbench::run_microbench, layerbench::run_layerbench, modelbench::run_modelbench,
                         tuner::run_tune};

int run(int argc, char** argv) {
  auto command = parse_command_line(argc, argv);
  if (!command) return kOk;
  require<BadInput>(command->runs_layers(),
                    "{0}: found {1}, which runs no layer in this process, expected `moetune {1}`", argv[0],
                    command->verb);
  set_log_level(command->log);
  if (command->wide) widen_output();
  set_max_input_bytes(command->max_input);
  if (command->call.layers->device == DeviceKind::cuda) set_cuda_connections();
  const auto processes = start_processes(command->ranks, std::vector<std::string>(argv, argv + argc));
  return run_together(processes.get(), [&] {
    // All ranks write into the folders, but only the first one writes the files.
    if (processes && !is_leader(*processes))
      std::erase_if(command->targets, [](const auto& t) { return !t.is_folder; });
    require_targets(command->targets);
    return command->call.run_layers(kHalf, processes.get());
  });
}

}  // namespace
}  // namespace moe::cli

int main(int argc, char** argv) {
  const int code = moe::cli::run_and_report_errors([&] { return moe::cli::run(argc, argv); });
  // Ends the process at once, because the libraries' clean-up may wait for ranks that have ended.
  if (code == moe::kRankFailure) std::_Exit(code);
  return code;
}
