#pragma once
// The memory that ranks compute in: a GPU's or the machine's.
#include "moe/measure/bench_ranks.h"

namespace moe::verbs {

/// Returns its free bytes, where there are fewest of all processes; infinity where nobody knows. Every process of the
/// ranks calls it. Throws NoHardware for GPUs that are not there.
double free_bytes(const measure::BenchRanks& ranks);

/// Returns how many of `all` ranks share it with this process's: threads one GPU or machine, processes the machine,
/// where they have one address.
int64_t sharers(const measure::BenchRanks& ranks, int64_t all);

}  // namespace moe::verbs
