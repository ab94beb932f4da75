#include "moe/plan/flow.h"

#include "moe/base/enum_array.h"
#include "moe/base/registry.h"
#include "moe/plan/task_kind.h"

namespace moe {
namespace {

using enum TaskKind;
using enum Tokens;
using enum RowRoute;
constexpr std::array kGathered{dispatch, allgather, expert, reducescatter, combine};
constexpr std::array kReduced{dispatch, expert, allreduce, combine};
constexpr std::array kAlone{dispatch, expert, combine};
constexpr std::array kAloneWide{dispatch, expert, combine, gather};
constexpr std::array kGatheredWide{dispatch, allgather, expert, reducescatter, combine, gather};

// clang-format off
constexpr EnumArray<Flow, FlowTraits, kFlows> kTraits{{{
    // flow             name           holds     gates       way         one_group, home_by_peers, stages
    {Flow::sharded,     "sharded",     own,      own,        over_esp,   false, false, kGathered, kGathered},
    {Flow::replicated,  "replicated",  mp_group, esp_groups, all_groups, false, false, kReduced, kAlone},
    {Flow::fused,       "fused",       mp_group, own,        fused,      false, false, kAlone, kAlone},
    {Flow::fused_gated, "fused-gated", mp_group, mp_group,   fused,      false, true,  kAloneWide, kAloneWide},
    {Flow::tensor,      "tensor",      mp_group, mp_group,   all_groups, true,  false, kReduced, kReduced},
    {Flow::dropped,     "dropped",     mp_group, mp_group,   over_mp,    true,  false, kGatheredWide, kGatheredWide},
}}};
// clang-format on

static_assert(is_in_enum_order(kTraits, &FlowTraits::flow), "a row a flow, in the enumerators' order");

}  // namespace

const FlowTraits& traits_of(Flow flow) { return kTraits[flow]; }
std::string_view name_of(Flow flow) { return traits_of(flow).name; }

GroupKind group_of(Flow flow, TaskKind kind) {
  const GroupKind group = traits_of(kind).group;
  if (group == GroupKind::ep && traits_of(flow).fused()) return GroupKind::ep_esp;
  if (kind == TaskKind::allgather && traits_of(flow).way == RowRoute::over_mp) return GroupKind::mp;
  return group;
}

std::span<const TaskKind> stages_of(Flow flow, Phase phase) {
  return phase == Phase::forward ? traits_of(flow).forward : traits_of(flow).backward;
}

}  // namespace moe
