// The verbs that run layers; `moetune` hands them over.
#include <array>
#include <cstdlib>

#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/processes.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/registry.h"
#include "moe/base/terminal.h"
#include "moe/device/device.h"
#include "tuner/tune.h"

namespace moe::cli {
namespace {

struct Verb {
  std::string_view name;
  int (*run)(const Command& command, World* processes);
};

constexpr std::array kVerbs{
    Verb{"microbench", [](const Command& c, World* p) { return microbench::run_microbench(c.microbench, p); }},
    Verb{"layerbench", [](const Command& c, World* p) { return layerbench::run_layerbench(c.layerbench, p); }},
    Verb{"modelbench", [](const Command& c, World* p) { return modelbench::run_modelbench(c.modelbench, p); }},
    Verb{"tune", [](const Command& c, World* p) { return tuner::run_tune(c.tune, p); }},
};

int run(int argc, char** argv) {
  auto command = parse_command_line(argc, argv);
  if (!command) return kOk;
  require<BadInput>(runs_layers(*command), "{}: found nothing to run, expected `moetune {}`: it plans", argv[0],
                    command->verb);
  set_log_level(command->log);
  if (command->wide) widen_output();
  set_most_input(command->most_input);
  if (run_options(*command)->device == DeviceKind::cuda) set_cuda_connections();
  const auto processes = start_processes(command->ranks, std::vector<std::string>(argv, argv + argc));
  return run_together(processes.get(), [&] {
    // Each rank writes into the folders, and the first one the files.
    if (processes && !leads(*processes)) std::erase_if(command->targets, [](const auto& t) { return !t.is_folder; });
    require_targets(command->targets);
    return find_named(kVerbs, command->verb, "verb").run(*command, processes.get());
  });
}

}  // namespace
}  // namespace moe::cli

int main(int argc, char** argv) {
  const int code = moe::cli::guarded([&] { return moe::cli::run(argc, argv); });
  // The process ends at once: the libraries' own tidying up may wait for ranks that are no more.
  if (code == moe::kRankFailure) std::_Exit(code);
  return code;
}
