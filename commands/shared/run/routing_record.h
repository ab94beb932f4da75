#pragma once
// Writes the gates' choices as a routing trace, which `simulate --serve` and workloads read.
#include <span>
#include <string>

#include "moe/comm/world.h"
#include "moe/measure/layers/layer_bench.h"

namespace moe::commands {

/// Writes the experts that the ranks' last pass chose, for every token of every layer with experts. Micro-batches
/// follow each other in the numbering of tokens. `ranks` are this process's ranks in rank order. Every process of
/// `world` has to call it; rank 0's process writes. Throws BadInput for a file that cannot be written, and Unsupported
/// for a gate that does not choose the top k experts of each token.
void record_routing(const std::string& file, World& world, std::span<measure::RankRun* const> ranks);

/// Returns a function that dumps each schedule's tensors into `folder`/SCHEDULE (layer_dump.h), and writes the routing
/// of the first schedule to `file`. An empty name omits that part.
measure::Inspection inspection_of(const std::string& folder, const std::string& file);

}  // namespace moe::commands
