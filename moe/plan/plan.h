#pragma once
// A plan: what every rank does, on which lane, after what. The simulator, the bounds, the executor and the exporters
// all read it; nothing else says what runs.
//
// Structure (tasks, lanes, dependencies) depends on the schedule, the degrees and the slices alone and is shared
// between layers; a Plan adds groups, rows and work.
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

/// A lane is a FIFO queue on one resource: it runs its tasks in order, each as soon as its inputs are there.
enum class LaneKind : uint8_t { compute, inter, intra, comm, copy, gradient, receive, host };
std::string_view name_of(LaneKind kind);

struct Lane {
  LaneKind kind = LaneKind::compute;
  int stage = 0;
  bool owns_inter = false, owns_intra = false;  // the networks whose collectives run here; a gradient lane shares one
  std::vector<int> queue;                       // task ids, in FIFO order
  bool owns(Network network) const {
    return (network == Network::inter && owns_inter) || (network == Network::intra && owns_intra);
  }
};

/// Names what a task touches. Rows are chunk `chunk` of `chunks` over T_rank; whole buffers are chunk 0 of 1.
// clang-format off
enum class Buffer : uint8_t {
  input, gathered_input, attention_partial, hidden, routing,                 // dense part
  ordered, dispatched, gathered, expert_out, scattered, combined,            // MoE part, by rows of T_rank
  output, gradient,
  tokens, token_gradients, gathered_output,                                  // dense part, of all tokens of a group
  laid_out, reduced, exchanged, summed, home_gathered, home_laid_out,        // MoE part of the other flows
  received,                                                                  // from the stage before
  logits,                                                                    // of the model's head
  shared_input, shared_partial, shared_sum,                                  // the shared expert's, of B L tokens
  ffn_input, ffn_partial,                                                    // a dense layer's feed-forward's, likewise
  expert_hidden, attention_hidden,                                           // what halves dx leave to halves dw
  end_input, end_partial, softmax_sums,                                      // of a model's ends: over MP
  // under context parallelism: of a CP rank's tokens, of whole samples; the rest of the gradient of attention's input
  keys_values, all_keys_values, queries_partial
};
// clang-format on
inline constexpr int kBuffers = 37;
std::string_view name_of(Buffer buffer);

/// Names a layer's pass over a micro-batch. `again`: the forward that its backward begins with, where a layer keeps
/// its output alone (Recompute::full).
struct PassKey {
  Phase phase = Phase::forward;
  bool again = false;
  int micro_batch = 0, layer = 0;
  auto operator<=>(const PassKey&) const = default;
};

struct Access {
  Buffer buffer = Buffer::input;
  Phase phase = Phase::forward;
  int layer = 0;
  int chunk = 0, chunks = 1;
  int micro_batch = 0;
  bool again = false;  // of a forward that runs again
  PassKey pass() const { return {phase, again, micro_batch, layer}; }
};

struct Task {
  int id = 0;
  TaskKind kind = TaskKind::order;
  Phase phase = Phase::forward;
  int micro_batch = 0;
  int layer = 0;
  int chunk = 0, chunks = 1;
  int lane = 0;
  GroupKind group = GroupKind::none;  // whose ranks take part; none: computation
  int slice = -1;                     // of a gradient task: index into slices
  std::vector<int> after;             // ids; what it waits for beside its lane's predecessor
  std::vector<Access> reads, writes;
  bool again = false;  // of a forward that runs again
  PassKey pass() const { return {phase, again, micro_batch, layer}; }
  /// Returns the phase of the iteration in which it runs: what runs again is part of the backward.
  Phase runs_in() const { return again ? Phase::backward : phase; }
  /// Returns "backward dispatch 2/4 of layer 0".
  std::string name() const;
};

struct Structure {
  Flow flow = Flow::sharded;
  std::vector<Lane> lanes;
  std::vector<Task> tasks;  // tasks[i].id == i, in issue order: after every task it waits for
  int slices = 0;
};

/// Returns what a task waits for on other lanes, the last task of each: lanes are FIFO queues, so that it implies those
/// before it, and the order of the task's own lane implies the rest.
std::vector<int> awaited(const Structure& structure, const Task& task);

/// Counts gradient bytes that a plan must send, all of them exactly once.
struct Gradient {
  int layer = 0;
  int64_t bytes = 0;
  int made_by = -1;      // the task after which they exist; -1: they wait when the backward begins
  bool experts = false;  // of a rank's experts, summed over EDP
  bool alike = false;    // of what all ranks of the stage hold alike, summed over it; else of the dense part, over DP
  TaskKind sent_by() const {
    return alike ? TaskKind::stage_gradient : experts ? TaskKind::expert_gradient : TaskKind::gradient;
  }
};

/// Marks a slice of the gradients, which are one sequence of bytes: it may reach into those after its own, of the same
/// ranks.
struct GradientSlice {
  int gradient = 0;
  int64_t begin = 0, end = 0;  // bytes from the start of `gradient`
  int64_t bytes() const { return end - begin; }
};

/// What a task moves or computes on each rank, to be priced.
struct Work {
  Op op = Op::none;
  GroupKind group = GroupKind::none;
  double bytes = 0;  // volume as FSMoE counts it, what a rank sends to itself included
  double flops = 0;
  int gemms = 0;
};

/// In which order a stage runs micro-batches. gpipe: every stage runs all its forwards, then all its backwards.
/// 1f1b: as many forwards ahead as stages follow, then one backward and one forward in turn; with virtual stages the
/// interleaved order (pipeline_steps); of samples in parts as many more as follow the first one (Sun et al., Seq1F1B,
/// 2024).
enum class PipelineOrder : uint8_t { gpipe, one_f_one_b };

/// How pipeline stages share a model's layers: they are cut into stages x virtual_stages chunks of consecutive layers,
/// of which stage s holds the chunks s, s + stages, s + 2 stages, ... (Narayanan et al. 2021, section 2.2). So many
/// micro-batches in a row are the parts of the same samples: forwards take them in order, backwards from the last one.
struct StageSplit {
  int layers = 1, stages = 1, virtual_stages = 1;  // virtual_stages: chunks of a stage
  int parts = 1;
  int chunks() const { return stages * virtual_stages; }
};

struct Plan {
  std::string schedule;
  int degree_forward = 1, degree_backward = 1;
  int layers = 1, micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;  // of the micro-batches
  int virtual_stages = 1;                      // chunks of layers that a stage has
  LayerCase shape;                             // of a layer with experts
  DenseLayers dense;                           // those that have none
  Groups groups;
  int64_t rows = 0;        // T_rank
  int64_t vocabulary = 0;  // of a model with its ends; 0: layers alone
  StepShape step;
  EndWeights ends;  // those of a model, tasks or not
  std::vector<Gradient> gradients;
  std::vector<GradientSlice> slices;
  std::vector<Work> works;  // by task id
  std::shared_ptr<const Structure> structure;

  const std::vector<Task>& tasks() const { return structure->tasks; }
  int parts() const { return static_cast<int>(shape.layer.parts); }
  StageSplit split() const { return {layers, std::min(shape.parallel.pp, layers), virtual_stages, parts()}; }
  /// Returns which part of its samples a micro-batch is.
  int part_of(int micro_batch) const { return micro_batch % parts(); }
  /// Returns whether a task takes longer in one part of the samples than in another: attention sees the parts before.
  bool differs_by_part(const Task& task) const { return parts() > 1 && is_attention(task.kind); }
  Rows rows_of(const Task& task) const { return chunk_rows(rows, task.chunks, task.chunk); }
  /// Returns whether a layer of a task or gradient stands for one of the model's ends: its embedding, or its head.
  bool is_end(int layer) const { return layer < 0 || layer == layers; }
  /// Hashes everything that ranks must agree on before they run it.
  uint64_t hash() const;
};

/// Gives every task of the plan's structure its work.
void set_works(Plan& plan);
/// Returns the work of a task in a flow: volumes of its chunk of the layer, or its slice of the gradients. An exchange
/// has its share of a combine's bytes.
Work work_of(const Task& task, const LayerCase& shape, const std::vector<GradientSlice>& slices,
             Flow flow = Flow::sharded);
/// Returns the work of a model's end on the rank that has most of the vocabulary, for the tokens of its MP group.
Work end_work(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow, int64_t vocabulary);
/// Returns the work of a task of Phase::step.
Work step_work(const Task& task, const Plan& plan, const LayerCases& cases);
/// Returns the work of all rows, or of the whole dense part, that `chunks` chunks share.
Work whole_work(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow);

/// Throws WrongResult naming the task that breaks a rule: ids and groups of works are consistent; dependencies are
/// acyclic; no lane order deadlocks (over all stages at once) or differs from the issue order; a network has one lane a
/// stage, beside a gradient lane that shares it; a collective runs on the lane that owns its group's network, and a
/// group of one rank has no task; a forward runs again whole or not at all, and its backward reads what it made last;
/// every gradient byte is sent exactly once, after every micro-batch made it (or, where no task makes it, after the
/// forward); a planned step sums every gradient that there is and steps every layer and end once, after its own
/// gradients' sums and, where it clips, after the norm of all; every row passes every stage of a layer once, and every
/// token its shared expert; a dense layer has its feed-forward and nothing of the MoE part, the others the opposite; a
/// stage receives in the order in which its neighbour sends; nothing but a forward's input is read that no task wrote
/// before.
void check_plan(const Plan& plan);

}  // namespace moe
