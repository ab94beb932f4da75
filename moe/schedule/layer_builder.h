#pragma once
// Builds a plan's structure pass by pass; a pass is one layer's forward or backward of one micro-batch. A schedule only
// says in which order tasks are issued. The builder derives dependencies, lanes and accesses, and omits collectives
// over one rank.
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

/// The lanes of all stages in a schedule's layout, and the choice of a lane for each task.
class StageLanes {
 public:
  StageLanes(LaneLayout layout, const GroupNetworks& networks, int stages, bool offloads = false);

  /// Returns the lanes of all stages, with empty queues.
  const std::vector<Lane>& all() const { return lanes_; }
  size_t lanes_per_stage() const { return lanes_per_stage_; }
  /// Returns the index of the lane of a group's collectives; for GroupKind::none, of the compute lane; -1 for a group
  /// of one rank.
  int lane(GroupKind group, int stage) const;
  int lane_of_gradients(int stage) const;
  /// Returns the index of the lane of a task of that kind. Copies use the copy lane or, if the layout has none, the
  /// lane of the rows that they rearrange. Receives have their own lane, so they overlap with the stage's sends. Tasks
  /// of offloaded experts use the lane of the host's link or that of the host.
  int lane(TaskKind kind, Flow flow, int stage) const;

 private:
  int lane_of(LaneKind kind, int stage) const;
  bool shares_gradients(GroupKind group) const;

  LaneLayout layout_;
  GroupNetworks networks_;
  std::vector<Lane> lanes_;
  size_t lanes_per_stage_ = 0;
};

// Puts a pass's tasks on lanes, together with slices of gradients from other passes and receives from a neighbouring
// stage. The derived class defines the tasks of a pass.

/// One layer's forward or backward of one micro-batch, on one pipeline stage.
struct Pass {
  Phase phase = Phase::forward;
  int stage = 0, micro_batch = 0, layer = 0;
  bool dense = false;  // a dense layer, whose passes have no degree
  int degree = 1;
  LaneOrder order = {};              // order of G and S on the intra lane, if the schedule searches it
  GradientPlacement gradients = {};  // the slices that this backward sends
  std::vector<int> ready = {};       // for each slice, the task it waits for; missing: the layer's forward
  bool is_recompute = false;         // the repetition of a forward in its backward
};
/// Properties that the layers of a builder share.
struct LayerBuildOptions {
  GroupNetworks networks;
  int peers = 1;  // ranks of the EP group
  bool shared_expert = false;
  int stages = 1;
  bool recomputes = false;  // each backward begins by repeating its forward
  int parts = 1;            // parts per sample (LayerShape::parts); each is a micro-batch
  bool offloads = false;    // experts are offloaded to the host
  int ring_blocks = 0;      // ParallelShape::ring_blocks()
};
/// The entry in Pass::ready of a slice of experts' gradients that the same pass makes.
inline constexpr int kMadeHere = -2;

class PassBuilder {
 public:
  PassBuilder(const Schedule& schedule, const LayerBuildOptions& layers);

  /// Returns the last task that makes experts' gradients in the most recently added backward.
  int last_expert() const { return last_expert_; }
  Structure take() { return std::move(structure_); }

  // Schedules call the following functions while a pass is added.
  int degree() const { return pass_->degree; }
  const Pass& pass() const { return *pass_; }
  /// Returns whether AllGather and ReduceScatter share a lane with AlltoAll or, if there is no AlltoAll, with the
  /// gradients. Such a schedule needs one_lane_order().
  bool uses_one_lane() const;
  /// Returns whether the group has more than one rank.
  bool spans(GroupKind group) const { return lane_of(group) >= 0; }
  /// Adds the slice of gradients that is placed in the MoE part, if there is one, at this point of the order.
  void gradient_in_moe();

 protected:
  struct Chain {  // the tasks that the next task waits for, and the data that it reads
    std::vector<int> after;
    Access data;
  };
  struct Forward {  // the layer's most recent forward, as its backward needs it
    int end = -1;
    Pass pass = {};
    Access input = {};
    Buffer expert_input = Buffer::ordered, moe_output = Buffer::expert_out, output = Buffer::output;
    Access shared_input = {};  // of a dense layer: the feed-forward's input
  };
  Forward& found() { return forwards_[{pass_->micro_batch, pass_->layer}]; }
  int push(TaskKind kind, const std::vector<int>& after);
  Task& last() { return structure_.tasks.back(); }

  void begin_slices();
  void gradient(size_t place, int after = -1);
  void next_gradient(int after = -1) { gradient(slice_of_pass_++, after); }
  void pieces_between(int lane, int from, int to);
  void send_remaining_pieces();
  void read_window();
  const GradientSlots& slots() const { return pass_->gradients.slots; }

  Chain receive(int sent);
  void fetch_experts();
  void wait_for_next_attention_dw(std::vector<int>& after) const;
  std::optional<int> part_waited_for() const;
  std::vector<int> after_last(TaskKind kind, std::vector<int> after);

  int lane_of(GroupKind group) const { return lanes_.lane(group, pass_->stage); }
  int gradient_lane() const { return lanes_.lane_of_gradients(pass_->stage); }
  Access whole_of(Buffer buffer) const { return access(buffer, pass_->phase); }
  Access access(Buffer buffer, Phase phase, int c = 0, int parts = 1) const {
    return {buffer, phase, pass_->layer, c, parts, pass_->micro_batch, phase == Phase::forward && runs_again()};
  }

  const Schedule& schedule_;
  StageLanes lanes_;
  int parts_;  // parts of samples
  bool offloads_;
  Structure structure_;
  const Pass* pass_ = nullptr;
  std::map<std::pair<int, int>, EnumArray<Phase, Chain, 2>> outputs_;  // by micro-batch and layer, then phase
  std::map<std::pair<int, int>, std::vector<int>> experts_;            // same keys: backward tasks that make gradients
  std::map<std::pair<int, int>, int> attention_halves_;  // same keys: attention_dw, if backwards have halves
  std::map<std::tuple<Phase, int, int>, int> sent_;      // by phase, micro-batch and layer: the send task
  /// Same keys, for samples in parts: attention or attention_dx.
  std::map<std::tuple<Phase, int, int>, int> attentions_;
  std::map<int, std::vector<int>> ended_;  // by stage: the last tasks of the most recent pass
  int last_expert_ = -1;

 private:
  std::vector<int> made_by_others(int ready) const;
  bool is_expert_gradient(size_t place) const;
  bool made_here(size_t place) const;
  int lane_of_slice(size_t place) const {
    return is_expert_gradient(place) ? lane_of(GroupKind::edp) : gradient_lane();
  }

  bool runs_again() const {
    const auto forward = forwards_.find({pass_->micro_batch, pass_->layer});
    return forward != forwards_.end() && forward->second.pass.is_recompute;
  }

  std::map<std::pair<int, int>, Forward> forwards_;                 // by micro-batch and layer
  std::map<std::tuple<TaskKind, Phase, int>, int> last_transfers_;  // by kind, phase and stage: a task's id + 1
  size_t slice_of_pass_ = 0;
  int first_slice_ = 0;
  struct LanePieces {
    int passed = 0;   // number of this backward's tasks on the lane so far
    size_t next = 0;  // the next piece; earlier ones are sent or belong to other lanes
  };
  std::vector<LanePieces> pieces_;  // for each lane of the stage
  struct Window {
    ExpertWindow layers = {};
    int place = 0;                                                 // place of the current pass's layer
    std::array<int, kWindowLayers> fetched{-1, -1}, read{-1, -1};  // for each place: its last fetch, its last reader
  };
  std::map<int, Window> windows_;  // by stage
};

}  // namespace moe::schedule

namespace moe {

class LayerBuilder : public schedule::PassBuilder {
 public:
  LayerBuilder(const Schedule& schedule, const schedule::LayerBuildOptions& layers)
      : PassBuilder(schedule, layers),
        peers_(layers.peers),
        ring_blocks_(layers.ring_blocks),
        shared_expert_(layers.shared_expert),
        recomputes_(layers.recomputes) {}

  /// Adds a pass and returns its last task; for a backward, returns the task after which the dense part's gradients
  /// exist. A forward's input is the output of the previous layer if its forward was added, a backward's that of the
  /// next layer's backward; otherwise the input comes from outside the plan.
  int add(const schedule::Pass& pass);

  // Schedules call the following functions while a pass is added.
  /// Returns the number of ranks of the EP group, which is the number of SAA's phases.
  int peers() const { return peers_; }
  /// These add chunk c of the MoE part; a collective over one rank adds nothing.
  void dispatch(int c) { part(TaskKind::dispatch, c, degree()); }
  void allgather(int c) { part(TaskKind::allgather, c, degree()); }
  /// Adds the expert of chunk c; in a backward, if the schedule halves it, only the half for the input's gradient.
  void expert(int c) { part(halves() ? TaskKind::expert_dx : TaskKind::expert, c, degree()); }
  void reducescatter(int c) { part(TaskKind::reducescatter, c, degree()); }
  void combine(int c) { part(TaskKind::combine, c, degree()); }
  /// Adds expert_dw of chunk c, for which no task of this pass waits; adds nothing in a forward.
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
  std::map<int, int> input_halves_;  // for each chunk, the pass's expert_dx
};

/// Adds the MoE part in the order D1 G1 .. Dr Gr [GAR] S1 C1 .. Sr Cr, for a single communication lane (the Tutel
/// baseline in FSMoE section 6.1).
void one_lane_order(LayerBuilder& b);

/// Adds the MoE part with D1..Dr [GAR] C1..Cr on the inter lane and G1..Gr S1..Sr on the intra lane (FSMoE section
/// 4.2); with a single lane, one_lane_order().
void fsmoe_order(LayerBuilder& b);
/// Adds the order of fsmoe_order(), then expert_dw of all chunks.
void halves_order(LayerBuilder& b);

}  // namespace moe

// Returns the buffer that a task of the MoE part writes.

namespace moe::schedule {

Buffer buffer_of(TaskKind kind);

}  // namespace moe::schedule
