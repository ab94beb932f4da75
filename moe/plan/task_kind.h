#pragma once
// Names what a task of a plan does, and in which part of a pass.
#include <cstdint>
#include <string_view>

#include "moe/plan/op.h"
#include "moe/shape/groups.h"

namespace moe {

// clang-format off
enum class TaskKind : uint8_t {
  mp_allgather, attention, mp_reducescatter, gate, order,  // the dense part
  dispatch, allgather, expert, reducescatter, combine,     // D G E S C, one task a chunk
  i_order, gradient,                                       // gradient: one slice's AllReduce over DP
  mp_allreduce, tokens_allgather, tokens_reducescatter,    // dense parts of flows that keep tokens on all MP ranks
  copy, allreduce, gather, home_copy,                      // of chunks: re-layout, partial sums, MP AllGather
  exchange, sum,                                           // SAA's phases of a combine, each followed by its gather
  expert_dx, expert_dw,                                    // an expert's backward in halves: of its input, its weights
  attention_dx, attention_dw,                              // attention's likewise
  expert_gradient,                                         // the same of experts over EDP, where a schedule plans it
  shared_allgather, shared,                                // the shared expert and its collectives over MP
  shared_reducescatter, shared_allreduce,
  ffn_allgather, ffn, ffn_reducescatter, ffn_allreduce,   // a dense layer's feed-forward, likewise
  send, recv, optimizer,                                   // between pipeline stages; the step after all of it
  weights, expert_weights,                                 // ZeRO 1: AllGather of a layer's, over DP and over EDP
  embed, head,                                             // a model's ends; the loss is the head's
  end_allgather, end_reducescatter, end_allreduce,         // of rows, over the MP ranks that share the vocabulary
  softmax_sums,                                            // their AllGather of each token's part of the softmax
  stage_gradient,                                          // the sum of what all ranks of a stage hold alike
  squares, norm,                                           // of all gradients, to clip them: a rank's, and their sum
  stage_weights,                                           // ZeRO 1: over DP, of an end, of all layers' gates and norms
  tied_gradient,                                           // the sum of a tied embedding between the end stages
  serve_estimate, serve_schedule, serve_swap,              // of inference: experts' popularity, placement, weights
  serve_check, serve_broadcast                             // the gate's choices to the scheduler, and its answer
};
// clang-format on
inline constexpr int kTaskKinds = 55;
std::string_view name_of(TaskKind kind);

/// Returns whether the task is part of the MoE layer's row traffic: one task a chunk.
constexpr bool is_chunked(TaskKind kind) {
  return (kind >= TaskKind::dispatch && kind <= TaskKind::combine) ||
         (kind >= TaskKind::copy && kind <= TaskKind::expert_dw);
}

/// Returns what the task is half of, expert or attention; of all other tasks their own kind.
constexpr TaskKind whole_of(TaskKind kind) {
  if (kind == TaskKind::expert_dx || kind == TaskKind::expert_dw) return TaskKind::expert;
  if (kind == TaskKind::attention_dx || kind == TaskKind::attention_dw) return TaskKind::attention;
  return kind;
}

/// Returns whether the task is half of a backward: the gradients of its input, or those of its weights.
constexpr bool is_half(TaskKind kind) { return whole_of(kind) != kind; }

/// Returns whether the task computes rows in the experts: a pass, or half of a backward.
constexpr bool is_expert(TaskKind kind) { return whole_of(kind) == TaskKind::expert; }

/// Returns whether the task is what rows pass between the exchanges: an expert, or the half of its backward that makes
/// the gradients of its input.
constexpr bool is_expert_stage(TaskKind kind) { return kind == TaskKind::expert || kind == TaskKind::expert_dx; }

/// Returns whether the task makes, in a backward, the gradients of the experts' weights.
constexpr bool makes_expert_gradients(TaskKind kind) { return kind == TaskKind::expert || kind == TaskKind::expert_dw; }

/// Returns whether the task computes attention: a pass, or half of a backward.
constexpr bool is_attention(TaskKind kind) { return whole_of(kind) == TaskKind::attention; }

/// Returns whether the task makes, in a backward, the gradients of attention's weights: a layer's last ones.
constexpr bool makes_attention_gradients(TaskKind kind) {
  return kind == TaskKind::attention || kind == TaskKind::attention_dw;
}

/// Returns whether the task sends a slice of the gradients.
constexpr bool sends_gradients(TaskKind kind) {
  return kind == TaskKind::gradient || kind == TaskKind::expert_gradient || kind == TaskKind::stage_gradient;
}

/// Returns whether the task gathers what the optimizer's steps of other ranks changed.
constexpr bool gathers_weights(TaskKind kind) {
  return kind == TaskKind::weights || kind == TaskKind::expert_weights || kind == TaskKind::stage_weights;
}

/// Returns whether the task is the shared expert, or brings it tokens or adds up its parts.
constexpr bool is_shared(TaskKind kind) {
  return kind >= TaskKind::shared_allgather && kind <= TaskKind::shared_allreduce;
}

/// Returns whether the task is a dense layer's feed-forward, or brings it tokens or adds up its parts.
constexpr bool is_ffn(TaskKind kind) { return kind >= TaskKind::ffn_allgather && kind <= TaskKind::ffn_allreduce; }

/// Returns whether the task computes one of a model's ends.
constexpr bool computes_end(TaskKind kind) { return kind == TaskKind::embed || kind == TaskKind::head; }

/// Returns whether the task is one of a model's ends, or a collective of one over MP.
constexpr bool is_end(TaskKind kind) { return kind >= TaskKind::embed && kind <= TaskKind::softmax_sums; }

/// Returns whether the task runs on the host, beside the device: what decides where experts are served.
constexpr bool runs_on_host(TaskKind kind) {
  return kind == TaskKind::serve_estimate || kind == TaskKind::serve_schedule;
}

/// Returns whether the task moves bytes inside a rank.
constexpr bool copies(TaskKind kind) {
  return kind == TaskKind::copy || kind == TaskKind::home_copy || kind == TaskKind::serve_swap;
}

/// Returns whether the task belongs to a layer's pass over a micro-batch.
constexpr bool is_of_layer(TaskKind kind) { return kind < TaskKind::send && !sends_gradients(kind); }

/// Names the part of an iteration. step: sums of gradients that no backward sends, and what follows them: the
/// optimizer.
enum class Phase : uint8_t { forward, backward, step };
inline constexpr int kPhases = 3;
std::string_view name_of(Phase phase);

/// Properties of a kind of task that do not depend on the layer.
struct TaskTraits {
  TaskKind kind;
  std::string_view name;  // in plans, records and timelines
  Op op;                  // that it is priced as; none: by its kind alone
  GroupKind group;        // over which it talks, as a sharded flow (group_of asks the flow); none: a computation
};
const TaskTraits& traits_of(TaskKind kind);

}  // namespace moe
