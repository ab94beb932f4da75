#pragma once
// Builds structures pass by pass: one layer's forward or backward of one micro-batch. A schedule says only what follows
// what on the lanes; data dependencies, lanes, missing collectives (a group of one rank) and accesses are derived here.
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/plan/plan.h"
#include "moe/schedule/schedule.h"

namespace moe::schedule {

/// The lanes of a schedule's layout, and which of them a task of a stage goes on.
class StageLanes {
 public:
  StageLanes(LaneLayout layout, const GroupNetworks& networks, int stages);

  /// Returns the lanes of all stages, nothing queued.
  const std::vector<Lane>& all() const { return lanes_; }
  size_t a_stage() const { return a_stage_; }
  /// Returns the lane of a group's collectives, or of what the group `none` computes; -1: a group of one rank.
  int of(GroupKind group, int stage) const;
  int of_gradients(int stage) const;
  /// Returns the lane of a task of that kind. Copies have a lane of their own, or that of what they lay out; receives
  /// from other stages have one, so that they run beside the stage's own sends.
  int of(TaskKind kind, Flow flow, int stage) const;

 private:
  int lane_of(LaneKind kind, int stage) const;
  bool shares_gradients(GroupKind group) const;

  LaneLayout layout_;
  GroupNetworks networks_;
  std::vector<Lane> lanes_;
  size_t a_stage_ = 0;
};

// Puts a pass's tasks on lanes, and among them what other passes left: slices of gradients, and what a neighbouring
// stage sent. What the tasks of a pass are is its derived class's.

/// One layer's forward or backward of one micro-batch, on one pipeline stage.
struct Pass {
  Phase phase = Phase::forward;
  int stage = 0, micro_batch = 0, layer = 0;
  bool dense = false;  // a layer without experts, which has no degree
  int degree = 1;
  LaneOrder order = {};              // of G and S on the intra lane, where a schedule has it searched
  GradientPlacement gradients = {};  // of the slices that this backward sends
  std::vector<int> ready = {};       // the task that each slice waits for; where there is none, the layer's forward
  bool again = false;                // a forward for its backward
};
/// What the layers of a builder have in common.
struct LayersBuilt {
  GroupNetworks networks;
  int peers = 1;  // ranks of the EP group
  bool shared_expert = false;
  int stages = 1;
  bool recomputes = false;  // each backward begins with its forward
  int parts = 1;            // of samples, which are micro-batches in a row
};
/// Stands in Pass::ready for a slice of what the pass makes itself: the gradients of its experts.
inline constexpr int kMadeHere = -2;

class PassBuilder {
 public:
  PassBuilder(const Schedule& schedule, const LayersBuilt& layers);

  /// Returns the task that made the last gradients of the experts, of the backward that was added last.
  int last_expert() const { return last_expert_; }
  Structure take() { return std::move(structure_); }

  // Schedules call what follows, while a pass is added.
  int degree() const { return pass_->degree; }
  const Pass& pass() const { return *pass_; }
  /// Returns whether AlltoAll (where there is none, gradients) and AllGather/ReduceScatter share a lane, so that only a
  /// one-lane order makes sense.
  bool one_lane() const;
  /// Returns whether the group has more than one rank.
  bool spans(GroupKind group) const { return lane_of(group) >= 0; }
  /// Sends the gradients that go into the MoE part here, if there are any.
  void gradient_in_moe();

 protected:
  struct Chain {  // what a task waits for next, and where its rows lie
    std::vector<int> after;
    Access data;
  };
  struct Forward {  // what a backward finds: of the forward that ran last
    int end = -1;
    Pass pass = {};
    Access input = {};
    Buffer expert_input = Buffer::ordered, moe_output = Buffer::expert_out, output = Buffer::output;
    Access shared_input = {};  // of a dense layer, its feed-forward's
  };
  Forward& found() { return forwards_[{pass_->micro_batch, pass_->layer}]; }
  int push(TaskKind kind, const std::vector<int>& after);
  Task& last() { return structure_.tasks.back(); }

  void begin_slices();
  void gradient(size_t place, int after = -1);
  void next_gradient(int after = -1) { gradient(slice_of_pass_++, after); }
  void pieces_between(int lane, int from, int to);
  void pieces_left();
  const GradientSlots& slots() const { return pass_->gradients.slots; }

  Chain receive(int sent);
  void wait_for_weights(std::vector<int>& after) const;
  std::optional<int> part_waited_for() const;
  std::vector<int> behind_last(TaskKind kind, std::vector<int> after);

  int lane_of(GroupKind group) const { return lanes_.of(group, pass_->stage); }
  int gradient_lane() const { return lanes_.of_gradients(pass_->stage); }
  Access whole_of(Buffer buffer) const { return of(buffer, pass_->phase); }
  Access of(Buffer buffer, Phase phase, int c = 0, int parts = 1) const {
    return {buffer, phase, pass_->layer, c, parts, pass_->micro_batch, phase == Phase::forward && runs_again()};
  }

  const Schedule& schedule_;
  StageLanes lanes_;
  int parts_;  // of samples
  Structure structure_;
  const Pass* pass_ = nullptr;
  std::map<std::pair<int, int>, EnumArray<Phase, Chain, 2>> outputs_;  // by micro-batch and layer: of each phase
  std::map<std::pair<int, int>, std::vector<int>> experts_;            // likewise: what makes gradients in a backward
  std::map<std::pair<int, int>, int> attention_halves_;    // likewise: its attention_dw, where a backward has halves
  std::map<std::tuple<Phase, int, int>, int> sent_;        // by phase, micro-batch and layer: the send
  std::map<std::tuple<Phase, int, int>, int> attentions_;  // likewise, of samples in parts: attention, or attention_dx
  std::map<int, std::vector<int>> ended_;                  // by stage: what ended the pass added last
  int last_expert_ = -1;

 private:
  std::vector<int> made_by_others(int ready) const;
  bool of_experts(size_t place) const;
  bool made_here(size_t place) const;
  int lane_of_slice(size_t place) const { return of_experts(place) ? lane_of(GroupKind::edp) : gradient_lane(); }

  bool runs_again() const {
    const auto forward = forwards_.find({pass_->micro_batch, pass_->layer});
    return forward != forwards_.end() && forward->second.pass.again;
  }

  std::map<std::pair<int, int>, Forward> forwards_;                 // by micro-batch and layer
  std::map<std::tuple<TaskKind, Phase, int>, int> last_transfers_;  // by kind, phase and stage: a task's id + 1
  size_t slice_of_pass_ = 0;
  int first_slice_ = 0;
  struct LanePieces {
    int passed = 0;   // tasks of this backward on the lane
    size_t next = 0;  // all pieces before it are of other lanes, or sent
  };
  std::vector<LanePieces> pieces_;  // by lane of the stage
};

}  // namespace moe::schedule

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
  void join_parts();
  int keys_values_backward();
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
/// Adds the same with the gradients of experts' weights behind those of inputs.
void halves_order(LayerBuilder& b);

}  // namespace moe

// What the tasks of the MoE part write.

namespace moe::schedule {

Buffer buffer_of(TaskKind kind);

}  // namespace moe::schedule
