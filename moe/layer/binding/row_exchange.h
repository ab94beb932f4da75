#pragma once
// Brings rows to the experts and back: by the MoE part's collectives, and the copies and sums that belong to them.
#include "moe/layer/binding/bound_plan.h"
#include "moe/layer/binding/wire_hooks.h"

namespace moe::layer {

class RowExchange {
 public:
  RowExchange(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan), hooks_(layer) {}

  // These enqueue a collective on the call's stream.
  void dispatch(const Task& task, CommCall call);
  void combine(const Task& task, CommCall call);
  /// Runs a phase of SAA's combine: rows go to the ranks of one EP peer and come from those of another. Where the plan
  /// has another number of phases than EP peers, a phase is a chunk of the rows of all peers.
  void exchange(const Task& task, CommCall call);
  void allgather(const Task& task, CommCall call);
  void gather_home(const Task& task, CommCall call);
  void reducescatter(const Task& task, CommCall call);
  void allreduce(const Task& task, CommCall call);

  // These compute, on their task's stream.
  /// Adds up what the ESP ranks made of a row (Parm's combine).
  void sum(const Task& task);
  /// Copies what came home in chunks to where it would lie if there were one chunk.
  void lay_out(const Task& task);

 private:
  /// Says where the copies of a piece of home lie, one for each ESP rank: `size` elements each, `step` apart from
  /// `first` on.
  struct Fan {
    int64_t home = 0, first = 0, step = 0, size = 0;
  };

  static Side side(RowsView rows, int chunk, int first, int count);
  static Side side(RowsView rows, int chunk) { return side(rows, chunk, 0, rows.layout.pieces()); }
  /// Returns a side that has each EP peer's rows once for each of that peer's ESP ranks.
  Side fanned_side(const PhaseBuffers& buffers, const RowLayout& home, int chunk) const;
  /// Returns where the copies for a peer lie: with `by_peer` together, as SAA's phases need them.
  Fan fan_of(const RowLayout& home, int chunk, int peer, bool by_peer) const;
  /// Copies the rows of each EP peer for every ESP rank of it (Parm's dump).
  void dump(const PhaseBuffers& buffers, const RowLayout& home, int chunk) const;
  /// Names the EP peer whose rows come home in a phase of SAA.
  int peer_of(int phase) const;

  void swap(const Task& task, Sides rows, const CommCall& call);
  void send(GroupKind group, Sides wire, const CommCall& call);
  void gather(const Task& task, const std::byte* own, Side receive, const CommCall& call);
  const PhaseBuffers& buffers(const Task& task) const { return layer_.buffers.of(task.phase); }
  const RankShape& rank() const { return layer_.shape; }
  const ParallelShape& parallel() const { return layer_.shape.shape.parallel; }

  LayerState& layer_;
  BoundPlan& plan_;
  WireHooks hooks_;
};

}  // namespace moe::layer
