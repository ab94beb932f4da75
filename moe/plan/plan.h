#pragma once
// A plan: the tasks of every rank, their lanes and their dependencies. It is the only description of the work to run:
// the simulator, the bounds, the executor and the exporters all read it.
//
// The structure (tasks, lanes, dependencies) depends only on the schedule, the degrees and the slices, so plans of
// different layers can share it; a Plan adds groups, rows and work.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/plan/flow.h"
#include "moe/plan/op.h"
#include "moe/plan/step.h"
#include "moe/shape/dense_layers.h"
#include "moe/shape/groups.h"
#include "moe/shape/volumes.h"

namespace moe {

/// The kinds of lanes. A lane is a FIFO queue on a resource: it runs its tasks in order, each once its inputs are
/// ready.
enum class LaneKind : uint8_t { compute, inter, intra, comm, copy, gradient, receive, host, host_link };
inline constexpr int kLaneKinds = 9;
std::string_view name_of(LaneKind kind);

struct Lane {
  LaneKind kind = LaneKind::compute;
  int stage = 0;
  bool owns_inter = false, owns_intra = false;  // networks whose collectives run on this lane
  std::vector<int> queue;                       // task ids, in FIFO order
  bool owns(Network network) const {
    return (network == Network::inter && owns_inter) || (network == Network::intra && owns_intra);
  }
};

/// The buffers that tasks read and write, one of each kind per pass. An Access names a chunk of its rows; a whole
/// buffer is chunk 0 of 1.
// clang-format off
enum class Buffer : uint8_t {
  input, gathered_input, attention_partial, hidden, routing,                 // dense part
  ordered, dispatched, gathered, expert_out, scattered, combined,            // MoE part, by rows of T_rank
  output, gradient,
  tokens, token_gradients, gathered_output,                                  // dense part, all tokens of a group
  laid_out, reduced, exchanged, summed, home_gathered, home_laid_out,        // MoE part, in flows other than sharded
  received,                                                                  // from the previous stage
  logits,                                                                    // of the model's head
  shared_input, shared_partial, shared_sum,                                  // the shared expert, rows of B L tokens
  ffn_input, ffn_partial,                                                    // a dense layer's feed-forward
  expert_hidden, attention_hidden,                                           // from a backward's dx half to its dw half
  end_input, end_partial, softmax_sums,                                      // collectives of a model's ends over MP
  // context parallelism: keys and values of own tokens; of whole samples; the input's gradient from queries
  keys_values, all_keys_values, queries_partial,
  received_keys_values, mixed                                                // ring: received blocks; heads' output
};
// clang-format on
inline constexpr int kBuffers = 39;
std::string_view name_of(Buffer buffer);

/// Identifies a layer's pass over a micro-batch. `again`: this is the repetition of the forward at the start of the
/// backward (Recompute::full).
struct PassKey {
  Phase phase = Phase::forward;
  bool is_recompute = false;
  int micro_batch = 0, layer = 0;
  auto operator<=>(const PassKey&) const = default;
};

struct Access {
  Buffer buffer = Buffer::input;
  Phase phase = Phase::forward;
  int layer = 0;
  int chunk = 0, chunks = 1;
  int micro_batch = 0;
  bool is_recompute = false;  // the pass repeats the forward
  PassKey pass() const { return {phase, is_recompute, micro_batch, layer}; }
};

struct Task {
  int id = 0;
  TaskKind kind = TaskKind::order;
  Phase phase = Phase::forward;
  int micro_batch = 0;
  int layer = 0;
  int chunk = 0, chunks = 1;
  int lane = 0;
  GroupKind group = GroupKind::none;  // the group of a collective or transfer; none: a computation
  int slice = -1;                     // index into Plan::slices of a gradient task; else -1
  std::vector<int> after;             // ids of the tasks that this task waits for, besides its predecessor on the lane
  std::vector<Access> reads, writes;
  bool is_recompute = false;  // the task belongs to a repeated forward
  PassKey pass() const { return {phase, is_recompute, micro_batch, layer}; }
  /// Returns the phase of the iteration in which the task runs: a repeated forward is part of the backward.
  Phase execution_phase() const { return is_recompute ? Phase::backward : phase; }
  /// Returns "backward dispatch 2/4 of layer 0".
  std::string name() const;
};

struct Structure {
  Flow flow = Flow::sharded;
  std::vector<Lane> lanes;
  std::vector<Task> tasks;  // in issue order: a task follows all tasks that it waits for; tasks[i].id == i
  int slices = 0;
};

/// Returns the smallest set of tasks that a task has to wait for explicitly: for each other lane, only the last task
/// that it depends on. Lanes are FIFO queues, so this covers earlier tasks of these lanes and of the task's own lane.
std::vector<int> cross_lane_dependencies(const Structure& structure, const Task& task);

/// Gradients of one origin that a plan must sum over ranks; each byte is sent exactly once.
struct Gradient {
  int layer = 0;
  int64_t bytes = 0;
  int made_by = -1;      // task that computes them; -1: they exist before the backward begins
  bool experts = false;  // gradients of a rank's experts, summed over EDP
  bool is_replicated =
      false;  // of replicated weights, summed over the stage; neither flag: of the dense part, summed over DP
  TaskKind sent_by() const {
    return is_replicated ? TaskKind::stage_gradient : experts ? TaskKind::expert_gradient : TaskKind::gradient;
  }
};

/// A slice of the bytes of all gradients, taken as one sequence. It begins in `gradient` and may extend into the next
/// ones if they are summed over the same ranks.
struct GradientSlice {
  int gradient = 0;
  int64_t begin = 0, end = 0;  // bytes from the start of `gradient`
  int64_t bytes() const { return end - begin; }
};

/// The bytes or FLOPs of a task on each rank, from which its price is computed.
struct Work {
  Op op = Op::none;
  GroupKind group = GroupKind::none;
  double bytes = 0;  // volume as in FSMoE, including what a rank sends to itself
  double flops = 0;
  int gemms = 0;
};

/// The order in which a stage runs micro-batches. gpipe: each stage runs all its forwards, then all its backwards.
/// 1f1b: a stage with k stages after it runs k + 1 forwards, then alternates backwards and forwards. With virtual
/// stages it is interleaved (pipeline_steps). With samples in parts, it first runs one more forward for each part after
/// the first (Sun et al., Seq1F1B, 2024).
enum class PipelineOrder : uint8_t { gpipe, one_f_one_b };

/// The division of a model's layers over pipeline stages. The layers are cut into stages x virtual_stages chunks of
/// consecutive layers, and stage s has the chunks s, s + stages, s + 2 stages, ... (Narayanan et al. 2021, section
/// 2.2). Layers are divided evenly, with one more in the first chunks if there is a remainder; if the first or last
/// stage sets its own number of layers, the other stages divide the rest. All chunks of a stage have equally many
/// layers. `parts` consecutive micro-batches are the parts of the same samples: forwards run them in order, backwards
/// in reverse order.
struct StageSplit {
  int layers = 1, stages = 1, virtual_stages = 1;  // virtual_stages: chunks per stage
  int parts = 1;
  int first_layers = 0, last_layers = 0;  // layers of the first and the last stage; 0: as the others
  int chunks() const { return stages * virtual_stages; }
  /// Returns whether the first or last stage has its own number of layers. False unless there are more layers than
  /// stages.
  bool has_own_ends() const { return layers > stages && stages > 1 && first_layers + last_layers > 0; }
  /// The stages without their own number of layers: the first of them, their number, and the layers that they divide.
  struct MiddleStages {
    int first, stages, layers;
  };
  MiddleStages middle_stages() const {
    const int begin = first_layers > 0 ? 1 : 0, end = last_layers > 0 ? 1 : 0;
    return {begin, stages - begin - end, layers - first_layers - last_layers};
  }
};
/// Returns the split of a model with layers of case `c`.
inline StageSplit split_of(const LayerCase& c, int layers, int stages, int virtual_stages) {
  const LayerShape& l = c.layer;
  return {layers,
          stages,
          virtual_stages,
          static_cast<int>(l.parts),
          static_cast<int>(l.first_stage_layers),
          static_cast<int>(l.last_stage_layers)};
}

struct Plan {
  std::string schedule;
  int degree_forward = 1, degree_backward = 1;
  int layers = 1, micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;  // order of the micro-batches
  int virtual_stages = 1;                      // chunks of layers per stage
  LayerCase shape;                             // case of an MoE layer, with the window if the model has one
  DenseLayers dense;                           // the layers without experts
  LayerSet whole;                              // the layers without the window
  Groups groups;
  int64_t rows = 0;        // T_rank
  int64_t vocabulary = 0;  // size of the vocabulary; 0: a plan without the model's ends
  StepShape step;
  EndWeights ends;  // weights of a model's ends, even if the ends have no tasks
  std::vector<Gradient> gradients;
  std::vector<GradientSlice> slices;
  std::vector<Work> works;  // for each task, by id
  std::shared_ptr<const Structure> structure;

  const std::vector<Task>& tasks() const { return structure->tasks; }
  int parts() const { return static_cast<int>(shape.layer.parts); }
  StageSplit split() const { return split_of(shape, layers, std::min(shape.parallel.pp, layers), virtual_stages); }
  /// Returns which part of its samples a micro-batch is (LayerShape::parts).
  int part_of(int micro_batch) const { return micro_batch % parts(); }
  /// Returns whether a task's time depends on the part of the samples. Attention's does: it also reads earlier parts.
  bool differs_by_part(const Task& task) const { return parts() > 1 && is_attention(task.kind); }
  Rows rows_of(const Task& task) const { return chunk_rows(rows, task.chunks, task.chunk); }
  /// Returns whether the layer number of a task or gradient denotes an end of the model: embedding or head.
  bool is_end(int layer) const { return layer < 0 || layer == layers; }
  /// Returns a hash of everything that ranks must agree on before they run the plan.
  uint64_t hash() const;
};

/// Sets the work of every task of the plan's structure.
void set_works(Plan& plan);
/// Returns the work of a task in a flow: that of its chunk of the layer, or of its slice of the gradients. An exchange
/// has its share of a combine's bytes.
Work work_of(const Task& task, const LayerCase& shape, const std::vector<GradientSlice>& slices,
             Flow flow = Flow::sharded);
/// Returns the work of a model's end on the rank with the most of the vocabulary, for the tokens of its MP group.
Work end_work(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow, int64_t vocabulary);
/// Returns the work of a task of Phase::step.
Work step_work(const Task& task, const Plan& plan, const LayerCases& cases);
/// Returns the work of all chunks together: that of all rows, or of the whole dense part.
Work whole_work(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow);

/// Throws WrongResult naming the task that breaks a rule: ids and groups of works are consistent; dependencies are
/// acyclic; no lane order deadlocks (over all stages together) or differs from the issue order; a network has one lane
/// per stage, and a gradient lane that shares it; a collective runs on the lane that owns its group's network, and a
/// group of one rank has no task; a forward is repeated completely or not at all, and its backward reads the repeated
/// results; every gradient byte is sent exactly once, after every micro-batch made it (or, if no task makes it, after
/// the forward); a planned step sums all gradients and steps every layer and end once, after the sums of its own
/// gradients and, if it clips, after the norm of all; every row passes every stage of a layer once, and every token
/// its shared expert; a dense layer has its feed-forward and nothing of the MoE part, an MoE layer the opposite; a
/// stage receives in the order in which its neighbour sends; only a forward's input is read without having been
/// written; the window has the weights of offloaded experts while they compute, and their gradients go to the host
/// once.
void check_plan(const Plan& plan);

}  // namespace moe
