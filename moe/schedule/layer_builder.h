#pragma once
// Builds the structure of one layer. A schedule says only what follows what on the lanes; data dependencies, lanes,
// missing collectives (a group of one rank) and accesses are derived here.
#include <vector>

#include "moe/schedule/schedule.h"

namespace moe {

class LayerBuilder {
 public:
  explicit LayerBuilder(const StructureKey& key);

  Phase phase() const { return phase_; }
  int degree() const { return degree_; }
  /// AlltoAll and AllGather/ReduceScatter share a lane, so that only a one-lane order makes sense.
  bool one_lane() const;

  /// Chunk c of the MoE part. A collective over one rank adds nothing.
  void dispatch(int c) { chunk_task(TaskKind::dispatch, GroupKind::ep, c); }
  void allgather(int c) { chunk_task(TaskKind::allgather, GroupKind::esp, c); }
  void expert(int c) { chunk_task(TaskKind::expert, GroupKind::none, c); }
  void reducescatter(int c) { chunk_task(TaskKind::reducescatter, GroupKind::esp, c); }
  void combine(int c) { chunk_task(TaskKind::combine, GroupKind::ep, c); }
  /// Gradients that go into the MoE part are sent here, if there are any.
  void gradient_in_moe();

  Structure build();

 private:
  struct Chain {  // what a chunk waits for next, and where its rows lie
    int task;
    Access data;
  };
  void forward();
  void backward();
  void moe_part();
  int add(TaskKind kind, GroupKind group, std::vector<int> after);
  int add_dense(TaskKind kind, GroupKind group, Buffer writes);
  void chunk_task(TaskKind kind, GroupKind group, int c);
  void gradient(std::vector<int> after);
  int lane_of(GroupKind group) const;
  Task& last() { return structure_.tasks.back(); }
  Access whole(Buffer buffer) const { return {buffer, phase_, 0, 0, 1}; }

  StructureKey key_;
  Structure structure_;
  Phase phase_ = Phase::forward;
  int degree_ = 1;
  int slice_ = 0;
  int forward_end_ = -1;  // the forward's last task, which the backward waits for
  Buffer expert_input_ = Buffer::ordered, moe_output_ = Buffer::expert_out;  // as the forward left them
  Chain dense_{-1, {}};                                                      // the dense part is one chain
  std::vector<Chain> chunks_;
};

/// D1 G1 .. Dr Gr [GAR] S1 C1 .. Sr Cr: the order of one communication lane (FSMoE section 6.1's Tutel baseline).
void one_lane_order(LayerBuilder& b);

/// Inter D1..Dr [GAR] C1..Cr, intra G1..Gr S1..Sr (FSMoE section 4.2); on one lane the order above.
void fsmoe_order(LayerBuilder& b);

}  // namespace moe
