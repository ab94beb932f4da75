// The verbs that run layers; `moetune` hands them over.
#include "cli/errors.h"
#include "cli/flags.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "tuner/verify/verified_tune.h"

int main(int argc, char** argv) {
  return moe::guarded([&] {
    const auto command = moe::parse_command_line(argc, argv);
    if (!command) return int{moe::kOk};
    moe::World* processes = nullptr;
    if (command->verb == "microbench") return moe::run_microbench(command->microbench, processes);
    if (command->verb == "layerbench") return moe::run_layerbench(command->layerbench, processes);
    return moe::run_verified_tune(command->tune, processes);
  });
}
