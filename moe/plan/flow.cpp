#include "moe/plan/flow.h"

#include <array>

namespace moe {
namespace {

using enum TaskKind;
using enum Tokens;
using enum Way;
constexpr std::array kGathered{dispatch, allgather, expert, reducescatter, combine};
constexpr std::array kReduced{dispatch, expert, allreduce, combine};
constexpr std::array kAlone{dispatch, expert, combine};
constexpr std::array kAloneWide{dispatch, expert, combine, gather};
constexpr std::array kGatheredWide{dispatch, allgather, expert, reducescatter, combine, gather};

// clang-format off
constexpr std::array<FlowTraits, kFlows> kTraits{{
    // flow             name           holds     gates       way         one_group, home_by_peers, stages
    {Flow::sharded,     "sharded",     own,      own,        over_esp,   false, false, kGathered, kGathered},
    {Flow::replicated,  "replicated",  mp_group, esp_groups, all_groups, false, false, kReduced, kAlone},
    {Flow::fused,       "fused",       mp_group, own,        fused,      false, false, kAlone, kAlone},
    {Flow::fused_gated, "fused-gated", mp_group, mp_group,   fused,      false, true,  kAloneWide, kAloneWide},
    {Flow::tensor,      "tensor",      mp_group, mp_group,   all_groups, true,  false, kReduced, kReduced},
    {Flow::dropped,     "dropped",     mp_group, mp_group,   over_mp,    true,  false, kGatheredWide, kGatheredWide},
}};
// clang-format on

constexpr bool in_order() {
  for (size_t i = 0; i < kTraits.size(); ++i)
    if (static_cast<size_t>(kTraits[i].flow) != i) return false;
  return true;
}
static_assert(in_order(), "a row a flow, in the enumerators' order");

}  // namespace

const FlowTraits& traits_of(Flow flow) { return kTraits[static_cast<size_t>(flow)]; }
std::string_view name_of(Flow flow) { return traits_of(flow).name; }

GroupKind group_of(Flow flow, TaskKind kind) {
  switch (kind) {
    case TaskKind::dispatch:
    case TaskKind::combine:
    case TaskKind::exchange:
      return traits_of(flow).fused() ? GroupKind::ep_esp : GroupKind::ep;
    case TaskKind::allgather:
      return traits_of(flow).way == Way::over_mp ? GroupKind::mp : GroupKind::esp;
    case TaskKind::reducescatter:
    case TaskKind::allreduce:
    case TaskKind::tokens_allgather:
    case TaskKind::tokens_reducescatter:
      return GroupKind::esp;
    case TaskKind::mp_allgather:
    case TaskKind::mp_reducescatter:
    case TaskKind::mp_allreduce:
    case TaskKind::gather:
    case TaskKind::shared_allgather:
    case TaskKind::shared_reducescatter:
    case TaskKind::shared_allreduce:
    case TaskKind::ffn_allgather:
    case TaskKind::ffn_reducescatter:
    case TaskKind::ffn_allreduce:
    case TaskKind::end_allgather:
    case TaskKind::end_reducescatter:
    case TaskKind::end_allreduce:
    case TaskKind::softmax_sums:
      return GroupKind::mp;
    case TaskKind::gradient:
    case TaskKind::weights:
    case TaskKind::stage_weights:
      return GroupKind::dp;
    case TaskKind::expert_gradient:
    case TaskKind::expert_weights:
      return GroupKind::edp;
    case TaskKind::stage_gradient:
      return GroupKind::stage;
    case TaskKind::norm:
      return GroupKind::world;
    case TaskKind::send:
    case TaskKind::recv:
    case TaskKind::tied_gradient:
      return GroupKind::pp;
    default:
      return GroupKind::none;
  }
}

std::span<const TaskKind> stages_of(Flow flow, Phase phase) {
  return phase == Phase::forward ? traits_of(flow).forward : traits_of(flow).backward;
}

}  // namespace moe
