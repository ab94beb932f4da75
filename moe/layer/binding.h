#pragma once
// Gives a plan's tasks their meaning on one rank of a layer. Everything that depends on the plan (layouts of both
// phases, names, gradient slices) is made in the constructor; issue() only enqueues.
//
// Steady state (a layer stands for one of many alike): the gradient tasks of a pass sum, over DP, the dense gradients
// that the pass before made, in place. So after two passes over the same input the layer's gradients are whole but for
// MoeLayer::finish_gradients. Before the first pass they are zeros.
//
// What no plan carries: after a forward's gate, on its lane, all ranks add up the auxiliary losses' statistics and,
// where no token is dropped, tell each other their rows. No task's time and no price holds that meeting.
#include <array>
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/layer/moe_layer.h"

namespace moe {

/// Throws Unsupported naming what of a plan the layer can't run: several layers, chunks that mix (cuts_of).
void require_runnable(const Plan& plan);

class LayerBinding : public Binding {
 public:
  /// `layer` must outlive it; the plan's structure is shared. Throws WrongResult naming what differs unless the plan is
  /// of the layer's case and flow, whole (forward and backward), and of one layer.
  LayerBinding(MoeLayer& layer, const Plan& plan);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void settle(const Task& task, Stream& stream) override;

 private:
  struct PhasePart {
    PhasePart(const RankShape& rank, const Cuts& cuts);
    Cuts cuts;
    PhaseLayouts layouts;
    ExpertRows rows;
    bool copies = false;           // a task of its own brings rows to the expert's place
    int first_expert = -1;         // the first expert task
    std::vector<Rows> at, packed;  // of a chunk: where the experts compute; in the chunk's own buffers
  };

  /// One side of a collective: packed blocks, by rank of the group.
  struct Side {
    std::byte* data = nullptr;
    std::vector<int64_t> bytes;
    bool only_some = false;  // ranks have a block
  };
  /// The copies of a piece of home for each ESP rank: of `size` elements, `step` apart from `first` on.
  struct Fan {
    int64_t home = 0, first = 0, step = 0, size = 0;
  };

  void begin_pass();
  void agree(Stream& stream);
  void fit();
  void compute(const Task& task);
  void attention(Phase phase);
  void gate(Phase phase);
  void order(Phase phase);
  void i_order(Phase phase);
  void copy(const Task& task);
  void expert(const Task& task);
  void sum(const Task& task);
  void lay_out(const Task& task);
  void exchange(const Task& task, CommCall call);
  void exchange_dense(const Task& task, CommCall call);
  void to_experts(const Task& task, CommCall call);
  void from_experts(const Task& task, CommCall call);
  void exchange_phase(const Task& task, CommCall call);
  void gather_home(const Task& task, CommCall call);
  void reduce(const Task& task, CommCall call);

  static Side side(RowsView rows, int chunk, int first, int count);
  static Side side(RowsView rows, int chunk) { return side(rows, chunk, 0, rows.layout.pieces()); }
  Side fanned_side(const PhaseBuffers& buffers, const RowLayout& home, int chunk) const;
  Fan fan_of(const RowLayout& home, int chunk, int peer, bool by_peer) const;
  void dump(const PhaseBuffers& buffers, const RowLayout& home, int chunk) const;
  void swap(const Task& task, Side send, Side receive, CommCall call);
  void swap(GroupKind group, Side send, Side receive, CommCall call);
  Side on_wire(const Side& rows, TensorView wire) const;
  void begin_moe(Phase phase);
  void end_moe(Phase phase);
  TensorView moe_gradient() const;  // of the MoE part's output
  void gather(GroupKind group, const std::byte* own, Side receive, CommCall call);

  PhasePart& part(Phase phase) { return parts_[static_cast<size_t>(phase)]; }
  PhaseBuffers& buffers(Phase phase) const;
  RowsView home_rows(Phase phase);  // what i_order reads, forward, and order's backward
  const RankShape& rank() const { return layer_.shape_; }
  Math& math() const { return layer_.device_.math(); }
  int64_t own_row() const { return rank().tokens.first - rank().mp_group().first; }

  MoeLayer& layer_;
  Plan plan_;
  std::array<PhasePart, 2> parts_;
  bool equal_ = true;              // blocks of all ranks
  std::vector<int64_t> of_ranks_;  // [rank][held group][E]: counts of rows where none is dropped
  RowCounts counts_;
  std::vector<std::string> names_;  // of the tasks: communicators keep views of them
};

}  // namespace moe
