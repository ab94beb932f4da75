#pragma once
// What prices the replays of a run's layers, and their shapes, as the records have them.
#include <string>

#include "moe/cost/profile.h"
#include "moe/plan/shape.h"
#include "moe/record/reader.h"

namespace moe::report {

/// Returns the profile of that name or file; where it is empty, the one that the run's own operations fit, else that of
/// its cluster. Throws BadInput where there is none, or the operations make no profile.
Profile replay_profile(const std::string& name_or_file, const Run& run, const std::string& cluster);

/// Returns the profile without start-up times: what is left of a task's seconds grows with its size.
Profile without_starts(Profile profile);

}  // namespace moe::report
