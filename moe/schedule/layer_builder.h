#pragma once
// Builds structures pass by pass: one layer's forward or backward of one micro-batch. A schedule says only what follows
// what on the lanes; data dependencies, lanes, missing collectives (a group of one rank) and accesses are derived here.
#include <map>
#include <vector>

#include "moe/schedule/pass_builder.h"

namespace moe {

class LayerBuilder : public schedule::PassBuilder {
 public:
  LayerBuilder(const Schedule& schedule, const schedule::LayersBuilt& layers)
      : PassBuilder(schedule, layers),
        peers_(layers.peers),
        shared_expert_(layers.shared_expert),
        recomputes_(layers.recomputes) {}

  /// Adds a pass and returns its last task; of a backward, the one behind which the dense part's gradients are there.
  /// The forward's input is the output of the layer before, where that was built; else it comes from outside, as does
  /// the backward's.
  int add(const schedule::Pass& pass);

  // Schedules call what follows, while a pass is added.
  /// Returns the number of ranks of the EP group; SAA has one phase for each.
  int peers() const { return peers_; }
  /// These add chunk c of the MoE part; a collective over one rank adds nothing.
  void dispatch(int c) { part(TaskKind::dispatch, c, degree()); }
  void allgather(int c) { part(TaskKind::allgather, c, degree()); }
  /// Adds the expert of chunk c; in a backward of a schedule that halves them, the half of its input.
  void expert(int c) { part(halves() ? TaskKind::expert_dx : TaskKind::expert, c, degree()); }
  void reducescatter(int c) { part(TaskKind::reducescatter, c, degree()); }
  void combine(int c) { part(TaskKind::combine, c, degree()); }
  /// Adds the other half of chunk c's expert, for which nothing of this pass waits; nothing in a forward.
  void expert_weights(int c);
  /// Adds part c of `parts`. Where the number of parts changes, the first waits for all parts before it.
  void part(TaskKind kind, int c, int parts);
  void whole(TaskKind kind) { part(kind, 0, 1); }

 protected:
  Chain dense_;  // the dense part is one chain

 private:
  int forward();
  void forward_again();
  int backward();
  int ffn_forward();
  int ffn_backward();
  void ffn(Buffer sum);
  void begin_shared(const Access& tokens);
  void end_shared();
  void attention_forward();
  Access dense_forward();
  void dense_backward();
  void attention(Buffer sum);
  bool gradients_after_mp() const { return lane_of(GroupKind::mp) == lane_of(GroupKind::dp); }
  void begin_backward();
  void regroup(int parts);
  void join_chunks(TaskKind kind, Buffer writes);
  int push_dense(TaskKind kind, Buffer writes);
  int dense_end() const { return dense_.after.empty() ? -1 : dense_.after.back(); }
  bool halves() const { return schedule_.halves_backward && pass_->phase == Phase::backward; }
  int end_backward();
  void keep_expert(Task& task);
  void cut(Task& task, int c, int parts);

  int peers_;
  bool shared_expert_, recomputes_;
  Chain shared_;  // the shared expert another, beside the MoE part
  std::vector<Chain> chunks_;
  std::map<int, int> input_halves_;  // by chunk: the pass's expert_dx
};

/// Adds D1 G1 .. Dr Gr [GAR] S1 C1 .. Sr Cr: the order of one communication lane (FSMoE section 6.1's Tutel baseline).
void one_lane_order(LayerBuilder& b);

/// Adds inter D1..Dr [GAR] C1..Cr, intra G1..Gr S1..Sr (FSMoE section 4.2); on one lane the order above.
void fsmoe_order(LayerBuilder& b);

}  // namespace moe
