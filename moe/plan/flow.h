#pragma once
// How rows reach the experts and return, and which dense part goes with it: six flows, a row of traits each.
//
// To add a flow:
//   1. Add its enumerator to Flow and its row to the table in flow.cpp. Work, memory, rank shapes, layouts, buffers,
//      schedules and the layer read nothing else of a flow.
//   2. If its rows take a way that Way does not know, add that: to copies() (plan.cpp), to the stations
//      (moe/sharding/phase_layouts.cpp), to LayerBuffers::fit and to RowExchange (moe/layer/binding/).
//   3. Name it in a schedule. tests/layer then holds the layer to the reference, tests/properties the work to the
//      sources' volumes.
#include <cstdint>
#include <span>
#include <string_view>

#include "moe/plan/task_kind.h"
#include "moe/shape/groups.h"

namespace moe {

/// Names the flows, by their sources.
/// sharded      FSMoE section 2: T_rank rows a rank; AlltoAll over EP, AllGather and ReduceScatter over ESP
/// replicated   Parm's baseline: each MP rank gates all tokens of its ESP group; AlltoAll over EP, AllReduce over ESP
/// fused        Parm S1: tokens split over MP before the gate, gathered at the end; one AlltoAll over EP and ESP
/// fused_gated  Parm S2: split after the gate, rows gathered over MP; one AlltoAll over EP and ESP
/// tensor       MoNTA's baseline: each MP rank sends all rows; AlltoAll over EP, AllReduce over ESP (= MP)
/// dropped      MoNTA O1 to O3: each MP rank sends 1 / N_MP of the rows; AlltoAll over EP, AllGather over MP
enum class Flow : uint8_t { sharded, replicated, fused, fused_gated, tensor, dropped };
inline constexpr int kFlows = 6;

/// Whose tokens: a rank's own B L / N_MP; its MP group's B L; those of the MP groups of all its ESP group's ranks.
enum class Tokens : uint8_t { own, mp_group, esp_groups };

/// What a rank sends to the experts, and over which group.
///   all_groups  rows of every group of tokens that it gates; AlltoAll over EP
///   over_esp    rows of its own group; AlltoAll over EP, then an AllGather over ESP
///   over_mp     the same with MP in place of ESP
///   fused       rows of its own group, to all ESP ranks of an EP peer; one AlltoAll over EP and ESP
enum class Way : uint8_t { all_groups, over_esp, over_mp, fused };

struct FlowTraits {
  Flow flow;
  std::string_view name;
  Tokens holds;  // whose input and output of the layer a rank has
  Tokens gates;  // whose experts it chooses
  Way way;
  bool one_group;                               // MP and ESP are the same ranks
  bool home_by_peers;                           // a plan may cut the rows that come home by EP peers, not by rows (SAA)
  std::span<const TaskKind> forward, backward;  // what every row passes, in order; SAA's phases stand for combine

  bool sends_all_groups() const { return way == Way::all_groups; }
  bool fused() const { return way == Way::fused; }
  /// Returns whether rows stop at a rank of the EP peer before those that share its experts gather them.
  bool through_peer() const { return way == Way::over_esp || way == Way::over_mp; }
  /// These say whether the MP ranks gather, after the MoE part, the tokens that each gated alone, or the rows that each
  /// sent alone.
  bool gathers_tokens() const { return holds == Tokens::mp_group && gates == Tokens::own; }
  bool gathers_rows() const { return gates == Tokens::mp_group && !sends_all_groups(); }
  /// Returns how many ranks gate a token and add up the gradients that they make of it.
  int gate_copies(const ParallelShape& p) const { return gates == Tokens::esp_groups ? p.esp : 1; }
  /// Returns how often the experts compute a token.
  int expert_copies(const ParallelShape& p) const { return gates == Tokens::esp_groups ? p.mp : 1; }
};
const FlowTraits& traits_of(Flow flow);
std::string_view name_of(Flow flow);

/// Returns the group over which a kind of task talks; none: a computation.
GroupKind group_of(Flow flow, TaskKind kind);
/// Returns FlowTraits::forward or backward, by the phase.
std::span<const TaskKind> stages_of(Flow flow, Phase phase);

}  // namespace moe
