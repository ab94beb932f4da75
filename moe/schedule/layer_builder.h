#pragma once
// Builds structures pass by pass: one layer's forward or backward of one micro-batch. A schedule only orders tasks on
// lanes; data dependencies, lanes, omitted collectives (a group of one rank) and accesses are derived here.
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/plan/offload.h"
#include "moe/plan/plan.h"
#include "moe/schedule/schedule.h"

namespace moe::schedule {

/// The lanes of a schedule's layout, and the lane of each task of a stage.
class StageLanes {
 public:
  StageLanes(LaneLayout layout, const GroupNetworks& networks, int stages, bool offloads = false);

  /// Returns the lanes of all stages, with empty queues.
  const std::vector<Lane>& all() const { return lanes_; }
  size_t a_stage() const { return a_stage_; }
  /// Returns the lane of a group's collectives or, for the group `none`, the compute lane; -1 for a group of one rank.
  int of(GroupKind group, int stage) const;
  int of_gradients(int stage) const;
  /// Returns the lane of a task of that kind. Copies have a lane of their own, or use that of the rows they rearrange;
  /// receives from other stages have a lane of their own, so that they overlap with the stage's sends. Offloaded
  /// experts have two lanes: the link to the host, and the host.
  int of(TaskKind kind, Flow flow, int stage) const;

 private:
  int lane_of(LaneKind kind, int stage) const;
  bool shares_gradients(GroupKind group) const;

  LaneLayout layout_;
  GroupNetworks networks_;
  std::vector<Lane> lanes_;
  size_t a_stage_ = 0;
};

// Puts a pass's tasks on lanes, together with slices of gradients from other passes and receives from a neighbouring
// stage. The derived class defines the tasks of a pass.

/// One layer's forward or backward of one micro-batch, on one pipeline stage.
struct Pass {
  Phase phase = Phase::forward;
  int stage = 0, micro_batch = 0, layer = 0;
  bool dense = false;  // a layer without experts, and so without a degree
  int degree = 1;
  LaneOrder order = {};              // order of G and S on the intra lane, if the schedule searches it
  GradientPlacement gradients = {};  // the slices that this backward sends
  std::vector<int> ready = {};       // by slice, the task it waits for; if missing, the layer's forward
  bool again = false;                // a forward that is repeated for its backward
};
/// Properties that the layers of a builder share.
struct LayersBuilt {
  GroupNetworks networks;
  int peers = 1;  // ranks of the EP group
  bool shared_expert = false;
  int stages = 1;
  bool recomputes = false;  // each backward begins by repeating its forward
  int parts = 1;            // parts of samples, which are consecutive micro-batches
  bool offloads = false;    // the host's memory keeps the experts
  int ring_blocks = 0;      // of keys and values, under context parallelism with a ring
};
/// Marks in Pass::ready a slice of gradients that the pass itself makes, those of its experts.
inline constexpr int kMadeHere = -2;

class PassBuilder {
 public:
  PassBuilder(const Schedule& schedule, const LayersBuilt& layers);

  /// Returns the task that made the last gradients of the experts in the most recently added backward.
  int last_expert() const { return last_expert_; }
  Structure take() { return std::move(structure_); }

  // Schedules call the following functions while a pass is added.
  int degree() const { return pass_->degree; }
  const Pass& pass() const { return *pass_; }
  /// Returns whether AlltoAll (or, without one, gradients) and AllGather/ReduceScatter share a lane, so that only a
  /// one-lane order makes sense.
  bool one_lane() const;
  /// Returns whether the group has more than one rank.
  bool spans(GroupKind group) const { return lane_of(group) >= 0; }
  /// Sends the gradients that are placed in the MoE part, if any, at this point.
  void gradient_in_moe();

 protected:
  struct Chain {  // the tasks that the next one waits for, and its input
    std::vector<int> after;
    Access data;
  };
  struct Forward {  // the most recent forward of the layer, for its backward
    int end = -1;
    Pass pass = {};
    Access input = {};
    Buffer expert_input = Buffer::ordered, moe_output = Buffer::expert_out, output = Buffer::output;
    Access shared_input = {};  // in a dense layer, the feed-forward's input
  };
  Forward& found() { return forwards_[{pass_->micro_batch, pass_->layer}]; }
  int push(TaskKind kind, const std::vector<int>& after);
  Task& last() { return structure_.tasks.back(); }

  void begin_slices();
  void gradient(size_t place, int after = -1);
  void next_gradient(int after = -1) { gradient(slice_of_pass_++, after); }
  void pieces_between(int lane, int from, int to);
  void pieces_left();
  void read_window();
  const GradientSlots& slots() const { return pass_->gradients.slots; }

  Chain receive(int sent);
  void fetch_experts();
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
  int parts_;  // parts of samples
  bool offloads_;
  Structure structure_;
  const Pass* pass_ = nullptr;
  std::map<std::pair<int, int>, EnumArray<Phase, Chain, 2>> outputs_;  // by micro-batch and layer, then phase
  std::map<std::pair<int, int>, std::vector<int>> experts_;            // likewise: backward tasks that make gradients
  std::map<std::pair<int, int>, int> attention_halves_;    // likewise: attention_dw, if backwards have halves
  std::map<std::tuple<Phase, int, int>, int> sent_;        // by phase, micro-batch and layer: the send
  std::map<std::tuple<Phase, int, int>, int> attentions_;  // likewise, for samples in parts: attention or attention_dx
  std::map<int, std::vector<int>> ended_;                  // by stage: the last tasks of the most recent pass
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
    int passed = 0;   // tasks of this backward on the lane so far
    size_t next = 0;  // earlier pieces are sent or belong to other lanes
  };
  std::vector<LanePieces> pieces_;  // by lane of the stage
  struct Window {
    ExpertWindow layers = {};
    int place = 0;                                                 // of the present pass's layer
    std::array<int, kWindowLayers> fetched{-1, -1}, read{-1, -1};  // by place: the fetch, the last task that reads it
  };
  std::map<int, Window> windows_;  // by stage
};

}  // namespace moe::schedule

namespace moe {

class LayerBuilder : public schedule::PassBuilder {
 public:
  LayerBuilder(const Schedule& schedule, const schedule::LayersBuilt& layers)
      : PassBuilder(schedule, layers),
        peers_(layers.peers),
        ring_blocks_(layers.ring_blocks),
        shared_expert_(layers.shared_expert),
        recomputes_(layers.recomputes) {}

  /// Adds a pass and returns its last task; for a backward, the task after which the dense part's gradients exist. The
  /// forward's input is the output of the layer before if that was added; otherwise it comes from outside. The same
  /// holds for the backward's.
  int add(const schedule::Pass& pass);

  // Schedules call the following functions while a pass is added.
  /// Returns the number of ranks of the EP group; SAA has one phase for each.
  int peers() const { return peers_; }
  /// These add chunk c of the MoE part; a collective over one rank adds nothing.
  void dispatch(int c) { part(TaskKind::dispatch, c, degree()); }
  void allgather(int c) { part(TaskKind::allgather, c, degree()); }
  /// Adds the expert of chunk c; in a backward, if the schedule halves it, only the half for the input's gradient.
  void expert(int c) { part(halves() ? TaskKind::expert_dx : TaskKind::expert, c, degree()); }
  void reducescatter(int c) { part(TaskKind::reducescatter, c, degree()); }
  void combine(int c) { part(TaskKind::combine, c, degree()); }
  /// Adds the other half of chunk c's expert, for which no task of this pass waits; adds nothing in a forward.
  void expert_weights(int c);
  /// Adds part c of `parts`. If the number of parts changes, each new part waits for all earlier parts.
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
  void ring();
  void ring_attention(Buffer sum);
  void sum_attention(Buffer sum, const Access& input, int made);
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

  int peers_, ring_blocks_;
  bool shared_expert_, recomputes_;
  Chain shared_;  // the shared expert is a chain beside the MoE part
  std::vector<Chain> chunks_;
  std::map<int, int> input_halves_;  // by chunk: the pass's expert_dx
};

/// Adds D1 G1 .. Dr Gr [GAR] S1 C1 .. Sr Cr: the order of one communication lane (FSMoE section 6.1's Tutel baseline).
void one_lane_order(LayerBuilder& b);

/// Adds inter D1..Dr [GAR] C1..Cr, intra G1..Gr S1..Sr (FSMoE section 4.2); on one lane, the order above.
void fsmoe_order(LayerBuilder& b);
/// Adds the same order, with the gradients of experts' weights after those of their inputs.
void halves_order(LayerBuilder& b);

}  // namespace moe

// The buffers that the tasks of the MoE part write.

namespace moe::schedule {

Buffer buffer_of(TaskKind kind);

}  // namespace moe::schedule
