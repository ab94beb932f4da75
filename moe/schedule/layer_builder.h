#pragma once
// Builds structures pass by pass: one layer's forward or backward of one micro-batch. A schedule says only what follows
// what on the lanes; data dependencies, lanes, missing collectives (a group of one rank) and accesses are derived here.
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "moe/schedule/stage_lanes.h"

namespace moe {

/// Describes one layer's forward or backward of one micro-batch, on one pipeline stage.
struct Pass {
  Phase phase = Phase::forward;
  int stage = 0, micro_batch = 0, layer = 0;
  bool dense = false;  // a layer without experts, which has no degree
  int degree = 1;
  LaneOrder order = {};              // of G and S on the intra lane, where a schedule has it searched
  GradientPlacement gradients = {};  // of the slices that this backward sends
  std::vector<int> ready = {};       // the task that each slice waits for; where there is none, the layer's forward
};
/// Holds what the layers of a builder have in common.
struct LayersBuilt {
  StageLanes::Networks networks;
  int peers = 1;  // ranks of the EP group
  bool shared_expert = false;
  int stages = 1;
};
/// Stands in Pass::ready for a slice of what the pass makes itself: the gradients of its experts.
inline constexpr int kMadeHere = -2;

class LayerBuilder {
 public:
  LayerBuilder(const Schedule& schedule, const LayersBuilt& layers);

  /// Adds a pass and returns its last task. The forward's input is the output of the layer before, where that was
  /// built; else it comes from outside, as does the backward's.
  int add(const Pass& pass);
  /// Returns the last expert task of the backward that was added last.
  int last_expert() const { return last_expert_; }
  Structure take() { return std::move(structure_); }

  // Schedules call what follows, while a pass is added.
  int degree() const { return pass_->degree; }
  const Pass& pass() const { return *pass_; }
  /// Says whether AlltoAll (where there is none, gradients) and AllGather/ReduceScatter share a lane, so that only a
  /// one-lane order makes sense.
  bool one_lane() const;
  /// Says whether the group has more than one rank.
  bool spans(GroupKind group) const { return lane_of(group) >= 0; }
  /// Returns the number of ranks of the EP group; SAA has one phase for each.
  int peers() const { return peers_; }
  /// These add chunk c of the MoE part; a collective over one rank adds nothing.
  void dispatch(int c) { part(TaskKind::dispatch, c, degree()); }
  void allgather(int c) { part(TaskKind::allgather, c, degree()); }
  /// Of a schedule that halves experts, in a backward, their inputs' half.
  void expert(int c) { part(halves_experts() ? TaskKind::expert_dx : TaskKind::expert, c, degree()); }
  /// The other half of chunk c's, which nothing of this pass waits for; nothing in a forward.
  void expert_weights(int c);
  void reducescatter(int c) { part(TaskKind::reducescatter, c, degree()); }
  void combine(int c) { part(TaskKind::combine, c, degree()); }
  /// Adds part c of `parts`. Where the number of parts changes, the first waits for all parts before it.
  void part(TaskKind kind, int c, int parts);
  void whole(TaskKind kind) { part(kind, 0, 1); }
  /// Sends the gradients that go into the MoE part here, if there are any.
  void gradient_in_moe();

 protected:
  struct Chain {  // what a chunk waits for next, and where its rows lie
    std::vector<int> after;
    Access data;
  };
  struct Forward {  // what a backward finds
    int end = -1;
    Buffer expert_input = Buffer::ordered, moe_output = Buffer::expert_out, output = Buffer::output;
    Access shared_input = {};  // of a dense layer, its feed-forward's
  };
  int forward();
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
  Forward& found() { return forwards_[{pass_->micro_batch, pass_->layer}]; }
  int push(TaskKind kind, const std::vector<int>& after);
  void regroup(int parts);
  void join_chunks(TaskKind kind, Buffer writes);
  int push_dense(TaskKind kind, Buffer writes);
  int dense_end() const { return dense_.after.empty() ? -1 : dense_.after.back(); }
  void gradient(size_t place, int after = -1);
  std::vector<int> made_by_others(int ready) const;
  bool halves_experts() const { return schedule_.halves_experts && pass_->phase == Phase::backward; }
  void keep_expert(Task& task);
  void receive(int sent);
  std::vector<int> behind_last(TaskKind kind, std::vector<int> after);
  void pieces_between(int lane, int from, int to);
  void pieces_left();
  bool of_experts(size_t place) const;
  bool made_here(size_t place) const;
  void begin_slices();
  int lane_of(GroupKind group) const { return lanes_.of(group, pass_->stage); }
  int gradient_lane() const { return lanes_.of_gradients(pass_->stage); }
  int lane_of_slice(size_t place) const { return of_experts(place) ? lane_of(GroupKind::edp) : gradient_lane(); }
  Task& last() { return structure_.tasks.back(); }
  Access whole_of(Buffer buffer) const { return of(buffer, pass_->phase); }
  Access of(Buffer buffer, Phase phase, int c = 0, int parts = 1) const {
    return {buffer, phase, pass_->layer, c, parts, pass_->micro_batch};
  }
  const GradientSlots& slots() const { return pass_->gradients.slots; }

  const Schedule& schedule_;
  StageLanes lanes_;
  int peers_;
  bool shared_expert_;
  Structure structure_;
  const Pass* pass_ = nullptr;
  std::map<std::pair<int, int>, Forward> forwards_;                 // by micro-batch and layer
  std::map<std::pair<int, int>, std::array<Chain, 2>> outputs_;     // by micro-batch and layer: of each phase
  std::map<std::tuple<Phase, int, int>, int> sent_;                 // by phase, micro-batch and layer: the send
  std::map<std::tuple<TaskKind, Phase, int>, int> last_transfers_;  // by kind, phase and stage: a task's id + 1
  size_t slice_of_pass_ = 0;
  int first_slice_ = 0, last_expert_ = -1;
  std::map<std::pair<int, int>, std::vector<int>> experts_;  // by micro-batch and layer: of a backward
  struct LanePieces {
    int passed = 0;   // tasks of this backward on the lane
    size_t next = 0;  // all pieces before it are of other lanes, or sent
  };
  std::vector<LanePieces> pieces_;  // by lane of the stage
  Chain dense_;                     // the dense part is one chain
  Chain shared_;                    // the shared expert another, beside the MoE part
  std::vector<Chain> chunks_;
};

/// Adds D1 G1 .. Dr Gr [GAR] S1 C1 .. Sr Cr: the order of one communication lane (FSMoE section 6.1's Tutel baseline).
void one_lane_order(LayerBuilder& b);

/// Adds inter D1..Dr [GAR] C1..Cr, intra G1..Gr S1..Sr (FSMoE section 4.2); on one lane the order above.
void fsmoe_order(LayerBuilder& b);

}  // namespace moe
