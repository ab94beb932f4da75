#pragma once
// The experts that gates chose, as a routing trace that `simulate --serve` and workloads read.
#include <span>
#include <string>

#include "moe/comm/world.h"
#include "moe/measure/layers/layer_bench.h"

namespace moe::commands {

/// Writes the choices of the ranks' last pass: of every token of every layer with experts, the tokens of a micro-batch
/// behind those of the one before. `ranks`: those of this process, in rank order; every process of `world` calls it,
/// rank 0's writes. Throws BadInput naming a file that can't be written, Unsupported naming a gate that does not choose
/// the top k of each token.
void record_routing(const std::string& file, World& world, std::span<measure::RankRun* const> ranks);

/// Returns what dumps each schedule's tensors into `folder`/SCHEDULE (layer_dump.h) and records the routing of the
/// first schedule into `file`; each only unless it is empty.
measure::Inspection inspection_of(const std::string& folder, const std::string& file);

}  // namespace moe::commands
