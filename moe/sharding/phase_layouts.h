#pragma once
// The layout of one phase's rows at each station of their way, for the flow and the numbers of chunks of a plan.
//
//   home      rows that this rank sends to the experts and gets back: its own group's rows, or (replicated, tensor) all
//             groups', one piece per EP peer
//   peer      at the expert's rank, before the AllGather over ESP and after the ReduceScatter: one piece per EP peer
//   gathered  where the experts read and write, streams are sources: one piece per sending rank
//   wide      home, gathered over MP: every group's rows, in the flows that gather there; as they arrive
//   laid_out  the rows of `wide` after the re-layout copy: as if there were one chunk
#include <array>
#include <span>

#include "moe/sharding/rank_shape.h"
#include "moe/sharding/row_layout.h"

namespace moe {

/// Numbers of chunks into which a phase's collectives and expert tasks are cut.
struct Cuts {
  int out = 1, back = 1;       // of the rows that go to the experts; of those that come home
  int expert = 1, reduce = 1;  // of the expert tasks; of the ReduceScatter
  bool phases = false;         // the way home is cut by peers (SAA)
  bool lays_out = false;       // whether rows that were gathered at home in chunks are reordered
  bool operator==(const Cuts&) const = default;
};
/// Returns the cuts of a plan's phase. Throws Unsupported naming the task if the layer can't run a phase that is cut in
/// this way.
Cuts cuts_of(const Plan& plan, Phase phase);

/// The rows of each expert that groups of tokens fill: for the groups that the ranks of an EP and ESP group hold,
/// member after member, and for the groups that this rank gates.
struct RowCounts {
  std::vector<int64_t> members;  // [member of EP x ESP][held group][E]
  std::vector<int64_t> gated;    // [gated group][E]
};

struct PhaseLayouts {
  PhaseLayouts(const RankShape& rank, const Cuts& cuts);
  /// Returns whether the rows of all groups that this rank gates are gathered over MP.
  bool gathers_home() const { return wide.streams() > 1; }
  /// Puts the tables in which a device's kernels look up rows on the device (RowLayout::put_on).
  void put_on(MemorySpace& memory, int64_t most);
  /// Returns the layouts in which a device's kernels look up rows.
  std::array<RowLayout*, 6> looked_up() { return {&home, &home_back, &wide, &laid_out, &gathered, &gathered_back}; }
  /// Sets the layouts' run-time sizes; allocates nothing.
  void set_counts(const RankShape& rank, const RowCounts& counts);

  RowLayout home, home_back, peer, peer_back, gathered, gathered_back, wide, laid_out;  // laid_out: if there is a copy

 private:
  std::vector<int64_t> of_sources_;  // [source][local expert]
  std::vector<int64_t> of_peers_;
};

/// Returns the phase of SAA's exchanges in which the rank of EP position `ep` gets the rows of peer `peer` home. In
/// each phase a peer serves another rank.
inline int phase_of_peer(const ParallelShape& parallel, int ep, int peer) {
  return (ep - peer + parallel.ep) % parallel.ep;
}

}  // namespace moe
