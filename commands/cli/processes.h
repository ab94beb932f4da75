#pragma once
// The processes of a run, one rank each, as a verb's flags ask for them.
#include <memory>

#include "commands/cli/flags.h"
#include "moe/comm/world.h"

namespace moe::cli {

/// Returns null for --backend local; else blocks until all ranks are here, and has rank 0 say on stderr who they are.
/// Throws BadInput for a launch that is half described, RankFailure where a rank stays away or runs something else.
std::unique_ptr<World> start_processes(const RanksFlags& flags, const std::vector<std::string>& argv);

/// Runs `verb`; where it throws on this rank, the others hear why. Bad input, missing hardware and wrong results, which
/// all ranks find, are reported by the first alone and returned as exit codes; whatever else was thrown, want of memory
/// too, is a RankFailure.
int run_together(World* processes, const std::function<int()>& verb);

}  // namespace moe::cli
