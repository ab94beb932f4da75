#pragma once
// The stamp of a run: program, machine, environment.
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe {

/// Now in UTC, "2025-01-31T12:00:00Z".
std::string utc_now();

/// The header of a run that begins now. Of the environment only what is on the allow-list (thread counts, visible
/// devices, ranks, NCCL's and Gloo's choices) is taken: no user, host name or path.
RunHeader stamp_run(std::vector<std::string> argv, std::string config_digest);

}  // namespace moe
