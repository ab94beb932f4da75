// `modelbench` of the command line with ranks that are threads, on an emulated GPU where it says --device cuda.
#include "commands/cli/errors.h"
#include "commands/cli/flags.h"
#include "modelbench/modelbench.h"
#include "moe/base/terminal.h"

int main(int argc, char** argv) {
  return moe::cli::guarded([&]() -> int {
    const auto command = moe::cli::parse_command_line(argc, argv);
    if (!command) return moe::kOk;
    moe::require<moe::BadInput>(command->verb == "modelbench", "found {}, expected modelbench", command->verb);
    constexpr moe::cli::RunningHalf kHalf{nullptr, nullptr, moe::modelbench::run_modelbench, nullptr};
    return command->call.run_layers(kHalf, nullptr);
  });
}
