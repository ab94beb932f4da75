// The verbs that run layers, with ranks that are threads, on an emulated GPU where the command line says --device cuda.
#include "commands/cli/errors.h"
#include "commands/cli/flags.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/terminal.h"
#include "tuner/tune.h"

int main(int argc, char** argv) {
  return moe::cli::run_and_report_errors([&]() -> int {
    const auto command = moe::cli::parse_command_line(argc, argv);
    if (!command) return moe::kOk;
    moe::require<moe::BadInput>(command->runs_layers(), "found {}, expected a verb that runs layers", command->verb);
    constexpr moe::cli::RunVerbs kHalf{moe::microbench::run_microbench, moe::layerbench::run_layerbench,
                                       moe::modelbench::run_modelbench, moe::tuner::run_tune};
    return command->call.run_layers(kHalf, nullptr);
  });
}
