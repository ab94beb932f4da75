#pragma once
// The layout of one phase's rows at each station on their way, for a plan's flow and numbers of chunks.
//
//   home      rows that this rank sends to the experts and gets back, one piece per EP peer: the rows of its own group
//             of tokens or, in the replicated and tensor flows, of all groups
//   peer      rows at the expert's rank before the AllGather over ESP and after the ReduceScatter: one piece per EP
//             peer
//   gathered  rows that the experts read and write: one piece per sending rank; its streams are the senders
//   wide      the rows of `home` of all MP ranks, in the order in which their AllGather delivers them (only in flows
//             with that AllGather)
//   laid_out  the rows of `wide` after the re-layout copy, in the order that they would have with one chunk
#include <array>
#include <span>

#include "moe/sharding/rank_shape.h"
#include "moe/sharding/row_layout.h"

namespace moe {

/// Numbers of chunks into which a phase's collectives and expert tasks are cut.
struct ChunkCounts {
  int out = 1, back = 1;       // chunks of the rows to the experts; chunks of the rows that come back
  int expert = 1, reduce = 1;  // number of expert tasks; number of ReduceScatters
  bool phases = false;         // whether the rows that come back are cut by EP peer (SAA)
  bool lays_out = false;       // whether rows that were gathered at home in chunks are reordered
  bool operator==(const ChunkCounts&) const = default;
};
/// Returns the cuts of a plan's phase. Throws Unsupported naming the task if the layer can't run a phase that is cut in
/// this way.
ChunkCounts chunk_counts_of(const Plan& plan, Phase phase);

/// The number of rows that each group of tokens has for each expert, once for the groups that the ranks of the EP x ESP
/// group hold, and once for the groups that this rank gates.
struct RowCounts {
  std::vector<int64_t> members;  // [member of EP x ESP][held group][E]
  std::vector<int64_t> gated;    // [gated group][E]
};

struct PhaseLayouts {
  PhaseLayouts(const RankShape& rank, const ChunkCounts& cuts);
  /// Returns whether the rows of all groups that this rank gates are gathered over MP.
  bool gathers_home() const { return wide.streams() > 1; }
  /// Puts the tables in which a device's kernels look up rows on the device (RowLayout::place_tables_on).
  void place_tables_on(MemorySpace& memory, int64_t most);
  /// Returns the layouts in which a device's kernels look up rows.
  std::array<RowLayout*, 6> looked_up() { return {&home, &home_back, &wide, &laid_out, &gathered, &gathered_back}; }
  /// Sets the layouts' run-time sizes; allocates nothing.
  void set_counts(const RankShape& rank, const RowCounts& counts);

  RowLayout home, home_back, peer, peer_back, gathered, gathered_back, wide, laid_out;  // laid_out: if there is a copy

 private:
  std::vector<int64_t> source_counts_;  // [source][local expert]
  std::vector<int64_t> peer_counts_;
};

/// Returns the phase of SAA's exchanges in which the rank at EP position `ep` gets its rows back from peer `peer`. A
/// peer sends to a different rank in each phase.
inline int phase_of_peer(const ParallelShape& parallel, int ep, int peer) {
  return (ep - peer + parallel.ep) % parallel.ep;
}

}  // namespace moe
