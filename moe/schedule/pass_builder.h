#pragma once
// Puts a pass's tasks on lanes, and among them what other passes left: slices of gradients, and what a neighbouring
// stage sent. What the tasks of a pass are is its derived class's.
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "moe/schedule/stage_lanes.h"

namespace moe::schedule {

/// Describes one layer's forward or backward of one micro-batch, on one pipeline stage.
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
/// Holds what the layers of a builder have in common.
struct LayersBuilt {
  StageLanes::Networks networks;
  int peers = 1;  // ranks of the EP group
  bool shared_expert = false;
  int stages = 1;
  bool recomputes = false;  // each backward begins with its forward
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
  /// Says whether AlltoAll (where there is none, gradients) and AllGather/ReduceScatter share a lane, so that only a
  /// one-lane order makes sense.
  bool one_lane() const;
  /// Says whether the group has more than one rank.
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
  std::vector<int> behind_last(TaskKind kind, std::vector<int> after);

  int lane_of(GroupKind group) const { return lanes_.of(group, pass_->stage); }
  int gradient_lane() const { return lanes_.of_gradients(pass_->stage); }
  Access whole_of(Buffer buffer) const { return of(buffer, pass_->phase); }
  Access of(Buffer buffer, Phase phase, int c = 0, int parts = 1) const {
    return {buffer, phase, pass_->layer, c, parts, pass_->micro_batch, phase == Phase::forward && runs_again()};
  }

  const Schedule& schedule_;
  StageLanes lanes_;
  Structure structure_;
  const Pass* pass_ = nullptr;
  std::map<std::pair<int, int>, std::array<Chain, 2>> outputs_;  // by micro-batch and layer: of each phase
  std::map<std::pair<int, int>, std::vector<int>> experts_;      // likewise: what makes gradients in a backward
  std::map<std::pair<int, int>, int> attention_halves_;  // likewise: its attention_dw, where a backward has halves
  std::map<std::tuple<Phase, int, int>, int> sent_;      // by phase, micro-batch and layer: the send
  std::map<int, std::vector<int>> ended_;                // by stage: what ended the pass added last
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
