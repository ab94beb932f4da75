// The verbs that run layers; `moetune` hands them over.
#include <cstdlib>

#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/processes.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/check.h"
#include "moe/device/device.h"
#include "tuner/tune.h"

int main(int argc, char** argv) {
  const int code = moe::guarded([&] {
    const auto command = moe::parse_command_line(argc, argv);
    if (!command) return int{moe::kOk};
    moe::require<moe::BadInput>(moe::runs_layers(*command), "{}: found nothing to run, expected `moetune {}`: it plans",
                                argv[0], command->verb);
    moe::set_log_level(command->log);
    for (const auto device :
         {command->microbench.device, command->layerbench.device, command->modelbench.device, command->tune.device})
      if (device == moe::DeviceKind::cuda) moe::set_cuda_connections();
    const auto processes = moe::start_processes(command->ranks, std::vector<std::string>(argv, argv + argc));
    return moe::run_together(processes.get(), [&] {
      if (command->verb == "microbench") return moe::microbench::run_microbench(command->microbench, processes.get());
      if (command->verb == "layerbench") return moe::layerbench::run_layerbench(command->layerbench, processes.get());
      if (command->verb == "modelbench") return moe::modelbench::run_modelbench(command->modelbench, processes.get());
      return moe::tuner::run_tune(command->tune, processes.get());
    });
  });
  // The process ends at once: the libraries' own tidying up may wait for ranks that are no more.
  if (code == moe::kRankFailure) std::_Exit(code);
  return code;
}
