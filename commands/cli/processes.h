#pragma once
// The processes of a run, one rank each, as requested by a verb's flags.
#include <memory>

#include "commands/cli/flags.h"
#include "moe/comm/world.h"

namespace moe::cli {

/// Returns null for --backend local; else waits for all ranks and lets rank 0 print on stderr where they run. Throws
/// BadInput if the launch is only partly described, RankFailure if a rank is missing or runs something else.
std::unique_ptr<World> start_processes(const RanksFlags& flags, const std::vector<std::string>& argv);

/// Runs `verb`. If it throws on this rank, the others are told why. Bad input, missing hardware and wrong results occur
/// on all ranks, so only the first rank reports them, and they are returned as exit codes. Everything else, including a
/// lack of memory, is a RankFailure.
int run_together(World* processes, const std::function<int()>& verb);

}  // namespace moe::cli
