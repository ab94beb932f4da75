#pragma once
// Brings rows to the experts and back: by the MoE part's collectives, and the copies and sums that belong to them.
#include <cstddef>
#include <vector>

#include "moe/layer/binding/bound_plan.h"
#include "moe/layer/moe_layer.h"

namespace moe::layer {

// Calls a layer's hook (hooks/hook.h) around the MoE part and around each exchange, and has it convert an exchange's
// rows to the wire's type and back. A layer without a hook sends its rows as they are.

/// The sent or the received data of a collective: packed blocks, one for each rank of the group.
struct Side {
  std::byte* data = nullptr;
  std::vector<int64_t> bytes;
  bool has_missing_blocks = false;  // true if some ranks of the group have no block
};
struct Sides {
  Side send, receive;
};

class WireHooks {
 public:
  explicit WireHooks(LayerState& layer) : layer_(layer) {}

  /// Returns the gradient of the MoE part's output: if a norm follows, the result of the norm's backward; else the
  /// hook's copy of the loss's gradient or, without a hook, that gradient itself.
  TensorView moe_gradient() const;
  /// Call the hook at the beginning and at the end of the MoE part. The part's first and last task call these
  /// functions.
  void begin_moe(Phase phase) const;
  void end_moe(Phase phase) const;

  bool has_hook() const { return layer_.parts.hook != nullptr; }
  /// Enqueue the hook's calls before and after an exchange of `rows`. before_exchange() returns the data to exchange.
  Sides before_exchange(const Task& task, const Sides& rows, const CommCall& call) const;
  void after_exchange(const Task& task, const Sides& rows, const CommCall& call) const;

 private:
  struct Converted {
    TensorView rows, wire;
  };
  /// Converts a side into `buffer`, the wire's, if the wire's type isn't the layer's; else the rows are sent in place.
  Converted converted(const Side& side, TensorView buffer) const;
  Side wire_side(const Side& rows, TensorView wire) const;

  LayerState& layer_;
};

class RowExchange {
 public:
  RowExchange(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan), hooks_(layer) {}

  // These functions enqueue a collective on the call's stream.
  void dispatch(const Task& task, CommCall call);
  void combine(const Task& task, CommCall call);
  /// Runs a phase of SAA's combine: sends rows to the ranks of one EP peer and receives rows from those of another. If
  /// the plan's number of phases differs from the number of EP peers, a phase is a chunk of the rows of all peers.
  void exchange(const Task& task, CommCall call);
  void allgather(const Task& task, CommCall call);
  void gather_home(const Task& task, CommCall call);
  void reducescatter(const Task& task, CommCall call);
  void allreduce(const Task& task, CommCall call);

  // These functions compute, on their task's stream.
  /// Adds up the ESP ranks' partial results of a row (Parm's combine).
  void sum(const Task& task);
  /// Copies rows that were received in chunks to the places that they would have with one chunk.
  void lay_out(const Task& task);

 private:
  /// The places of the copies of a piece of home, one copy per ESP rank: `size` elements each, `step` elements apart
  /// from `first` on.
  struct FanOut {
    int64_t home = 0, first = 0, step = 0, size = 0;
  };

  static Side side(RowsView rows, int chunk, int first, int count);
  static Side side(RowsView rows, int chunk) { return side(rows, chunk, 0, rows.layout.pieces()); }
  /// Returns a side that has each EP peer's rows once for each of that peer's ESP ranks.
  Side fanned_side(const PhaseBuffers& buffers, const RowLayout& home, int chunk) const;
  /// Returns the places of the copies for a peer; `by_peer`: together, as SAA's phases need them.
  FanOut fan_out(const RowLayout& home, int chunk, int peer, bool by_peer) const;
  /// Copies the rows of each EP peer for each of its ESP ranks (Parm's dump).
  void dump(const PhaseBuffers& buffers, const RowLayout& home, int chunk) const;
  /// Returns the EP peer whose rows come home in a phase of SAA.
  int peer_of(int phase) const;

  void swap(const Task& task, Sides rows, const CommCall& call);
  void send(GroupKind group, Sides wire, const CommCall& call);
  void gather(const Task& task, const std::byte* own, Side receive, const CommCall& call);
  const PhaseBuffers& buffers(const Task& task) const { return layer_.buffers.phase_buffers(task.phase); }
  const RankShape& rank() const { return layer_.shape; }
  const ParallelShape& parallel() const { return layer_.shape.shape.parallel; }

  LayerState& layer_;
  BoundPlan& plan_;
  WireHooks hooks_;
};

/// Adapts layouts and buffers to the row counts of a dropless layer, which are known only at run time. After the gate
/// of each forward, all ranks exchange their row counts, from which the layouts of both phases and all buffers are set.
class RunTimeSizes {
 public:
  RunTimeSizes(LayerState& layer, BoundPlan& plan);

  /// Exchanges the row counts unless the layer has a capacity. Blocks the issuing thread, because the tasks that it
  /// issues next depend on the counts.
  void exchange_counts(Stream& stream);
  /// Resizes the layer's buffers and stored activations to the layouts.
  void fit();

 private:
  /// Fills counts_ from rank_counts_.
  void take_counts();
  /// Lets the device find all places again, and waits for it.
  void place(Stream& stream);

  LayerState& layer_;
  BoundPlan& plan_;
  std::vector<int64_t> rank_counts_;   // [rank][held group][E]
  Array<int64_t> device_rank_counts_;  // likewise, in the memory in which ranks exchange them
  RowCounts counts_;
};

}  // namespace moe::layer
