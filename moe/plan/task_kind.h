#pragma once
// The kinds of tasks in plans. A table has one row per kind, with the part of the model that it belongs to and its
// operation. To add a kind, add an enumerator and a row.
#include <cstdint>
#include <string_view>

#include "moe/base/enum_array.h"
#include "moe/base/registry.h"
#include "moe/plan/op.h"
#include "moe/shape/groups.h"

namespace moe {

// clang-format off
enum class TaskKind : uint8_t {
  // attention, whose backward may run in halves: the gradients of its input (dx) and of its weights (dw). With context
  // parallelism, keys and values are separate: CP ranks gather them before attention and sum their gradients after it.
  // In a ring, queries are separate too, and attention's heads are tasks of their own, one per block of keys and
  // values; between them, blocks and their gradients go to the next rank
  mp_allgather, attention, attention_dx, attention_dw, keys_values, cp_allgather, cp_reducescatter, heads, cp_send,
  cp_gradient_send, mp_reducescatter, mp_allreduce,
  gate, tokens_allgather, tokens_reducescatter,            // flows that keep tokens on all MP ranks
  order, i_order,                                          // permute and unpermute
  // rows on their way to the experts, in them and back, one task per chunk. copy rearranges rows; exchange and sum are
  // phases of SAA's combine, each followed by a gather over MP; home_copy rearranges the gathered rows
  dispatch, allgather, copy, expert, expert_dx, expert_dw, reducescatter, allreduce, combine, exchange, sum, gather,
  home_copy,
  shared_allgather, shared, shared_reducescatter, shared_allreduce,
  ffn_allgather, ffn, ffn_reducescatter, ffn_allreduce,    // a dense layer's feed-forward
  // a model's ends, with their collectives over the MP ranks that share the vocabulary. The head includes the loss;
  // softmax_sums gathers each token's part of the softmax
  embed, head, end_allgather, end_reducescatter, end_allreduce, softmax_sums,
  send, recv,                                              // between pipeline stages
  // sums of gradients: a slice of the dense part's over DP, of the experts' over EDP, of weights that all ranks of a
  // stage replicate, of an embedding that both end stages have
  gradient, expert_gradient, stage_gradient, tied_gradient,
  squares, norm,                                           // to clip gradients: squares of a rank's; over all ranks
  optimizer,
  weights, expert_weights, stage_weights,                  // ZeRO 1: AllGathers of weights over DP, EDP, a stage
  // offloaded experts. fetch: a layer's weights from the host to the window (the task's chunk is the place in the
  // window); store: their gradients to the host; host_optimizer: the optimizer's step on the host
  fetch, store, host_optimizer,
  // inference: estimate of experts' popularity, their placement, weight copies, messages of the gate's choices to the
  // scheduler, and its answer
  serve_estimate, serve_schedule, serve_swap, serve_check, serve_broadcast
};
// clang-format on
inline constexpr int kTaskKinds = 64;

/// The part of a model or of an iteration that a task belongs to. experts: rows on their way to the experts, in them
/// and back; stages: transfers between pipeline stages; offload: experts in the host's memory.
enum class TaskPart : uint8_t {
  attention,
  gate,
  permute,
  experts,
  shared_expert,
  feed_forward,
  ends,
  stages,
  gradients,
  gradient_norm,
  optimizer,
  weights,
  offload,
  serving
};

/// The operation of a task. compute_dx, compute_dw: the half of a backward for the gradients of the input, or of the
/// weights; copy: moves bytes inside a rank; sum: adds up rows that are on the rank.
enum class TaskOperation : uint8_t {
  compute,
  compute_dx,
  compute_dw,
  alltoall,
  allgather,
  reducescatter,
  allreduce,
  send,
  receive,
  copy,
  sum
};

/// Properties of a kind of task that do not depend on the layer.
struct TaskTraits {
  TaskKind kind;
  std::string_view name;  // name in plans, records and timelines
  TaskPart part;
  TaskOperation operation;
  GroupKind group;  // group over which it communicates in the sharded flow (group_of() for others); none: a computation
  char letter;      // letter in text timelines
};

namespace detail {
using enum TaskKind;
using Part = TaskPart;
using Does = TaskOperation;
using Over = GroupKind;

// clang-format off
inline constexpr EnumArray<TaskKind, TaskTraits, kTaskKinds> kTaskTraits{{{
    {mp_allgather,         "mp_allgather",         Part::attention,     Does::allgather,     Over::mp,    'M'},
    {attention,            "attention",            Part::attention,     Does::compute,       Over::none,  'A'},
    {attention_dx,         "attention_dx",         Part::attention,     Does::compute_dx,    Over::none,  'A'},
    {attention_dw,         "attention_dw",         Part::attention,     Does::compute_dw,    Over::none,  'Y'},
    {keys_values,          "keys_values",          Part::attention,     Does::compute,       Over::none,  'A'},
    {cp_allgather,         "cp_allgather",         Part::attention,     Does::allgather,     Over::cp,    'K'},
    {cp_reducescatter,     "cp_reducescatter",     Part::attention,     Does::reducescatter, Over::cp,    'K'},
    {heads,                "heads",                Part::attention,     Does::compute,       Over::none,  'A'},
    {cp_send,              "cp_send",              Part::attention,     Does::send,          Over::cp,    'K'},
    {cp_gradient_send,     "cp_gradient_send",     Part::attention,     Does::send,          Over::cp,    'K'},
    {mp_reducescatter,     "mp_reducescatter",     Part::attention,     Does::reducescatter, Over::mp,    'M'},
    {mp_allreduce,         "mp_allreduce",         Part::attention,     Does::allreduce,     Over::mp,    'M'},
    {gate,                 "gate",                 Part::gate,          Does::compute,       Over::none,  'T'},
    {tokens_allgather,     "tokens_allgather",     Part::gate,          Does::allgather,     Over::esp,   'K'},
    {tokens_reducescatter, "tokens_reducescatter", Part::gate,          Does::reducescatter, Over::esp,   'K'},
    {order,                "order",                Part::permute,       Does::compute,       Over::none,  'O'},
    {i_order,              "i_order",              Part::permute,       Does::compute,       Over::none,  'I'},
    {dispatch,             "dispatch",             Part::experts,       Does::alltoall,      Over::ep,    'D'},
    {allgather,            "allgather",            Part::experts,       Does::allgather,     Over::esp,   'G'},
    {copy,                 "copy",                 Part::experts,       Does::copy,          Over::none,  'L'},
    {expert,               "expert",               Part::experts,       Does::compute,       Over::none,  'E'},
    {expert_dx,            "expert_dx",            Part::experts,       Does::compute_dx,    Over::none,  'E'},
    {expert_dw,            "expert_dw",            Part::experts,       Does::compute_dw,    Over::none,  'Y'},
    {reducescatter,        "reducescatter",        Part::experts,       Does::reducescatter, Over::esp,   'S'},
    {allreduce,            "allreduce",            Part::experts,       Does::allreduce,     Over::esp,   'P'},
    {combine,              "combine",              Part::experts,       Does::alltoall,      Over::ep,    'C'},
    {exchange,             "exchange",             Part::experts,       Does::alltoall,      Over::ep,    'X'},
    {sum,                  "sum",                  Part::experts,       Does::sum,           Over::none,  'U'},
    {gather,               "gather",               Part::experts,       Does::allgather,     Over::mp,    'H'},
    {home_copy,            "home_copy",            Part::experts,       Does::copy,          Over::none,  'L'},
    {shared_allgather,     "shared_allgather",     Part::shared_expert, Does::allgather,     Over::mp,    'M'},
    {shared,               "shared",               Part::shared_expert, Does::compute,       Over::none,  'Q'},
    {shared_reducescatter, "shared_reducescatter", Part::shared_expert, Does::reducescatter, Over::mp,    'M'},
    {shared_allreduce,     "shared_allreduce",     Part::shared_expert, Does::allreduce,     Over::mp,    'M'},
    {ffn_allgather,        "ffn_allgather",        Part::feed_forward,  Does::allgather,     Over::mp,    'M'},
    {ffn,                  "ffn",                  Part::feed_forward,  Does::compute,       Over::none,  'Q'},
    {ffn_reducescatter,    "ffn_reducescatter",    Part::feed_forward,  Does::reducescatter, Over::mp,    'M'},
    {ffn_allreduce,        "ffn_allreduce",        Part::feed_forward,  Does::allreduce,     Over::mp,    'M'},
    {embed,                "embed",                Part::ends,          Does::compute,       Over::none,  'B'},
    {head,                 "head",                 Part::ends,          Does::compute,       Over::none,  'N'},
    {end_allgather,        "end_allgather",        Part::ends,          Does::allgather,     Over::mp,    'M'},
    {end_reducescatter,    "end_reducescatter",    Part::ends,          Does::reducescatter, Over::mp,    'M'},
    {end_allreduce,        "end_allreduce",        Part::ends,          Does::allreduce,     Over::mp,    'M'},
    {softmax_sums,         "softmax_sums",         Part::ends,          Does::allgather,     Over::mp,    'M'},
    {send,                 "send",                 Part::stages,        Does::send,          Over::pp,    'V'},
    {recv,                 "recv",                 Part::stages,        Does::receive,       Over::pp,    'W'},
    {gradient,             "gradient",             Part::gradients,     Does::allreduce,     Over::dp,    'R'},
    {expert_gradient,      "expert_gradient",      Part::gradients,     Does::allreduce,     Over::edp,   'F'},
    {stage_gradient,       "stage_gradient",       Part::gradients,     Does::allreduce,     Over::stage, 'R'},
    {tied_gradient,        "tied_gradient",        Part::gradients,     Does::send,          Over::pp,    'R'},
    {squares,              "squares",              Part::gradient_norm, Does::compute,       Over::none,  'Z'},
    {norm,                 "norm",                 Part::gradient_norm, Does::allreduce,     Over::world, 'Z'},
    {optimizer,            "optimizer",            Part::optimizer,     Does::compute,       Over::none,  'Z'},
    {weights,              "weights",              Part::weights,       Does::allgather,     Over::dp,    'J'},
    {expert_weights,       "expert_weights",       Part::weights,       Does::allgather,     Over::edp,   'J'},
    {stage_weights,        "stage_weights",        Part::weights,       Does::allgather,     Over::dp,    'J'},
    {fetch,                "fetch",                Part::offload,       Does::copy,          Over::none,  'J'},
    {store,                "store",                Part::offload,       Does::copy,          Over::none,  'J'},
    {host_optimizer,       "host_optimizer",       Part::offload,       Does::compute,       Over::none,  'Z'},
    {serve_estimate,       "serve_estimate",       Part::serving,       Does::compute,       Over::none,  'T'},
    {serve_schedule,       "serve_schedule",       Part::serving,       Does::compute,       Over::none,  'T'},
    {serve_swap,           "serve_swap",           Part::serving,       Does::copy,          Over::none,  'J'},
    {serve_check,          "serve_check",          Part::serving,       Does::send,          Over::ep,    'V'},
    {serve_broadcast,      "serve_broadcast",      Part::serving,       Does::send,          Over::ep,    'V'},
}}};
// clang-format on
static_assert(is_in_enum_order(kTaskTraits, &TaskTraits::kind), "a row a kind, in the enumerators' order");

}  // namespace detail

constexpr const TaskTraits& traits_of(TaskKind kind) { return detail::kTaskTraits[kind]; }
constexpr std::string_view name_of(TaskKind kind) { return traits_of(kind).name; }
constexpr TaskPart part_of(TaskKind kind) { return traits_of(kind).part; }
constexpr TaskOperation operation_of(TaskKind kind) { return traits_of(kind).operation; }

/// Returns the op whose prices a kind of task uses; Op::none if prices name the kind itself.
Op op_of(TaskKind kind);

constexpr bool computes(TaskKind kind) {
  const TaskOperation operation = operation_of(kind);
  return operation == TaskOperation::compute || operation == TaskOperation::compute_dx ||
         operation == TaskOperation::compute_dw;
}

/// Returns whether the task handles rows of the MoE layer, one task per chunk.
constexpr bool is_chunked(TaskKind kind) { return part_of(kind) == TaskPart::experts; }

/// Returns whether the task is half of a backward: the gradients of its input, or those of its weights.
constexpr bool is_half(TaskKind kind) {
  return operation_of(kind) == TaskOperation::compute_dx || operation_of(kind) == TaskOperation::compute_dw;
}

/// Returns the kind of the whole task for a half: expert or attention; `kind` itself if it is no half.
constexpr TaskKind whole_of(TaskKind kind) {
  if (!is_half(kind)) return kind;
  return part_of(kind) == TaskPart::experts ? TaskKind::expert : TaskKind::attention;
}

/// Returns whether the task computes rows in the experts, including halves of a backward.
constexpr bool is_expert(TaskKind kind) { return whole_of(kind) == TaskKind::expert; }

/// Returns whether rows pass through the task between dispatch and combine: expert, or the dx half of its backward. The
/// dw half only makes gradients of weights.
constexpr bool is_expert_stage(TaskKind kind) { return kind == TaskKind::expert || kind == TaskKind::expert_dx; }

/// Returns whether a backward task of this kind computes the gradients of the experts' weights.
constexpr bool makes_expert_gradients(TaskKind kind) { return kind == TaskKind::expert || kind == TaskKind::expert_dw; }

/// Returns whether the task computes attention, including halves of a backward.
constexpr bool is_attention(TaskKind kind) { return whole_of(kind) == TaskKind::attention; }

/// Returns whether a backward task of this kind computes gradients of attention's weights, the last ones of a layer.
constexpr bool makes_attention_gradients(TaskKind kind) {
  return kind == TaskKind::attention || kind == TaskKind::attention_dw || kind == TaskKind::keys_values;
}

/// Returns whether the task belongs to attention's ring: heads with one block, or a transfer of blocks or gradients.
constexpr bool is_ring_attention_task(TaskKind kind) {
  return kind == TaskKind::heads || kind == TaskKind::cp_send || kind == TaskKind::cp_gradient_send;
}

/// Returns whether the task sums a slice of the gradients.
constexpr bool sends_gradients(TaskKind kind) {
  return part_of(kind) == TaskPart::gradients && operation_of(kind) == TaskOperation::allreduce;
}

/// Returns whether the task gathers weights that other ranks' optimizers changed.
constexpr bool gathers_weights(TaskKind kind) { return part_of(kind) == TaskPart::weights; }

/// Returns whether the task is the shared expert, or one of its collectives.
constexpr bool is_shared(TaskKind kind) { return part_of(kind) == TaskPart::shared_expert; }

/// Returns whether the task is a dense layer's feed-forward, or one of its collectives.
constexpr bool is_ffn(TaskKind kind) { return part_of(kind) == TaskPart::feed_forward; }

/// Returns whether the task is one of a model's ends, or a collective of an end over MP.
constexpr bool is_end(TaskKind kind) { return part_of(kind) == TaskPart::ends; }

/// Returns whether the task computes one of a model's ends.
constexpr bool computes_end(TaskKind kind) { return is_end(kind) && computes(kind); }

/// Returns whether the task runs on the host: it places experts for serving, or updates offloaded experts.
constexpr bool runs_on_host(TaskKind kind) {
  return (part_of(kind) == TaskPart::serving || part_of(kind) == TaskPart::offload) && computes(kind);
}

/// Returns whether the task moves weights or gradients of offloaded experts over the host's link.
constexpr bool transfers_offloaded_weights(TaskKind kind) {
  return part_of(kind) == TaskPart::offload && !computes(kind);
}

/// Returns whether the task moves bytes inside a rank.
constexpr bool copies(TaskKind kind) { return operation_of(kind) == TaskOperation::copy; }

/// Returns whether the task belongs to a part that only MoE layers have.
constexpr bool is_moe(TaskKind kind) {
  const TaskPart part = part_of(kind);
  return part == TaskPart::gate || part == TaskPart::permute || part == TaskPart::experts ||
         part == TaskPart::shared_expert;
}

/// Returns whether the task belongs to a layer's pass over a micro-batch.
constexpr bool is_of_layer(TaskKind kind) {
  return is_moe(kind) || is_ffn(kind) || part_of(kind) == TaskPart::attention;
}

/// The phases of an iteration. step: after the backwards, sums of gradients that no backward sends, then the optimizer.
enum class Phase : uint8_t { forward, backward, step };
inline constexpr int kPhases = 3;
std::string_view name_of(Phase phase);

}  // namespace moe
