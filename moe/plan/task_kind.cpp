#include "moe/plan/task_kind.h"

#include <array>

#include "moe/base/registry.h"

namespace moe {
namespace {

// clang-format off
constexpr std::array<TaskTraits, kTaskKinds> kTaskTraits{{
    {TaskKind::mp_allgather,         "mp_allgather",         Op::allgather,      GroupKind::mp},
    {TaskKind::attention,            "attention",            Op::attention,      GroupKind::none},
    {TaskKind::mp_reducescatter,     "mp_reducescatter",     Op::reducescatter,  GroupKind::mp},
    {TaskKind::gate,                 "gate",                 Op::gemm,           GroupKind::none},
    {TaskKind::order,                "order",                Op::none,           GroupKind::none},
    {TaskKind::dispatch,             "dispatch",             Op::alltoall,       GroupKind::ep},
    {TaskKind::allgather,            "allgather",            Op::allgather,      GroupKind::esp},
    {TaskKind::expert,               "expert",               Op::expert,         GroupKind::none},
    {TaskKind::reducescatter,        "reducescatter",        Op::reducescatter,  GroupKind::esp},
    {TaskKind::combine,              "combine",              Op::alltoall,       GroupKind::ep},
    {TaskKind::i_order,              "i_order",              Op::none,           GroupKind::none},
    {TaskKind::gradient,             "gradient",             Op::allreduce,      GroupKind::dp},
    {TaskKind::mp_allreduce,         "mp_allreduce",         Op::allreduce,      GroupKind::mp},
    {TaskKind::tokens_allgather,     "tokens_allgather",     Op::allgather,      GroupKind::esp},
    {TaskKind::tokens_reducescatter, "tokens_reducescatter", Op::reducescatter,  GroupKind::esp},
    {TaskKind::copy,                 "copy",                 Op::copy,           GroupKind::none},
    {TaskKind::allreduce,            "allreduce",            Op::allreduce,      GroupKind::esp},
    {TaskKind::gather,               "gather",               Op::allgather,      GroupKind::mp},
    {TaskKind::home_copy,            "home_copy",            Op::copy,           GroupKind::none},
    {TaskKind::exchange,             "exchange",             Op::alltoall,       GroupKind::ep},
    {TaskKind::sum,                  "sum",                  Op::copy,           GroupKind::none},
    {TaskKind::expert_dx,            "expert_dx",            Op::expert,         GroupKind::none},
    {TaskKind::expert_dw,            "expert_dw",            Op::expert,         GroupKind::none},
    {TaskKind::attention_dx,         "attention_dx",         Op::attention,      GroupKind::none},
    {TaskKind::attention_dw,         "attention_dw",         Op::attention,      GroupKind::none},
    {TaskKind::expert_gradient,      "expert_gradient",      Op::allreduce,      GroupKind::edp},
    {TaskKind::shared_allgather,     "shared_allgather",     Op::allgather,      GroupKind::mp},
    {TaskKind::shared,               "shared",               Op::expert,         GroupKind::none},
    {TaskKind::shared_reducescatter, "shared_reducescatter", Op::reducescatter,  GroupKind::mp},
    {TaskKind::shared_allreduce,     "shared_allreduce",     Op::allreduce,      GroupKind::mp},
    {TaskKind::ffn_allgather,        "ffn_allgather",        Op::allgather,      GroupKind::mp},
    {TaskKind::ffn,                  "ffn",                  Op::expert,         GroupKind::none},
    {TaskKind::ffn_reducescatter,    "ffn_reducescatter",    Op::reducescatter,  GroupKind::mp},
    {TaskKind::ffn_allreduce,        "ffn_allreduce",        Op::allreduce,      GroupKind::mp},
    {TaskKind::send,                 "send",                 Op::sendrecv,       GroupKind::pp},
    {TaskKind::recv,                 "recv",                 Op::none,           GroupKind::pp},
    {TaskKind::optimizer,            "optimizer",            Op::none,           GroupKind::none},
    {TaskKind::weights,              "weights",              Op::allgather,      GroupKind::dp},
    {TaskKind::expert_weights,       "expert_weights",       Op::allgather,      GroupKind::edp},
    {TaskKind::embed,                "embed",                Op::none,           GroupKind::none},
    {TaskKind::head,                 "head",                 Op::none,           GroupKind::none},
    {TaskKind::end_allgather,        "end_allgather",        Op::allgather,      GroupKind::mp},
    {TaskKind::end_reducescatter,    "end_reducescatter",    Op::reducescatter,  GroupKind::mp},
    {TaskKind::end_allreduce,        "end_allreduce",        Op::allreduce,      GroupKind::mp},
    {TaskKind::softmax_sums,         "softmax_sums",         Op::allgather,      GroupKind::mp},
    {TaskKind::stage_gradient,       "stage_gradient",       Op::allreduce,      GroupKind::stage},
    {TaskKind::squares,              "squares",              Op::none,           GroupKind::none},
    {TaskKind::norm,                 "norm",                 Op::allreduce,      GroupKind::world},
    {TaskKind::stage_weights,        "stage_weights",        Op::allgather,      GroupKind::dp},
    {TaskKind::tied_gradient,        "tied_gradient",        Op::sendrecv,       GroupKind::pp},
    {TaskKind::serve_estimate,       "serve_estimate",       Op::none,           GroupKind::none},
    {TaskKind::serve_schedule,       "serve_schedule",       Op::none,           GroupKind::none},
    {TaskKind::serve_swap,           "serve_swap",           Op::copy,           GroupKind::none},
    {TaskKind::serve_check,          "serve_check",          Op::sendrecv,       GroupKind::ep},
    {TaskKind::serve_broadcast,      "serve_broadcast",      Op::sendrecv,       GroupKind::ep},
}};
// clang-format on

static_assert(in_enum_order(kTaskTraits, &TaskTraits::kind), "a row a kind, in the enumerators' order");

}  // namespace

const TaskTraits& traits_of(TaskKind kind) { return kTaskTraits[static_cast<size_t>(kind)]; }
std::string_view name_of(TaskKind kind) { return traits_of(kind).name; }

}  // namespace moe
