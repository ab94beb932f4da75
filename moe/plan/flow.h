#pragma once
// Flows: the ways in which rows reach the experts and return, each with the distribution of tokens in the dense part
// that it requires. A table has one row of traits per flow.
//
// To add a flow:
//   1. Add its enumerator to Flow and its row to the table in flow.cpp. All code uses only this row of a flow.
//   2. If its rows take a new way, add it to Way, and support it in copies() (plan.cpp), the stations
//      (moe/sharding/phase_layouts.cpp), LayerBuffers::fit and RowExchange (moe/layer/binding/).
//   3. Use it in a schedule. tests/layer then compares the layer with the reference, and tests/properties compares the
//      work with the sources' volumes.
#include <cstdint>
#include <span>
#include <string_view>

#include "moe/plan/task_kind.h"
#include "moe/shape/groups.h"

namespace moe {

/// The flows, with their sources.
/// sharded      FSMoE section 2: T_rank rows per rank; AlltoAll over EP, AllGather and ReduceScatter over ESP
/// replicated   Parm's baseline: each MP rank gates all tokens of its ESP group; AlltoAll over EP, AllReduce over ESP
/// fused        Parm S1: tokens split over MP before the gate, gathered at the end; one AlltoAll over EP and ESP
/// fused_gated  Parm S2: split after the gate, rows gathered over MP; one AlltoAll over EP and ESP
/// tensor       MoNTA's baseline: each MP rank sends all rows; AlltoAll over EP, AllReduce over ESP (= MP)
/// dropped      MoNTA O1 to O3: each MP rank sends 1 / N_MP of the rows; AlltoAll over EP, AllGather over MP
enum class Flow : uint8_t { sharded, replicated, fused, fused_gated, tensor, dropped };
inline constexpr int kFlows = 6;

/// A set of tokens. own: the rank's own B L / N_MP; mp_group: the B L of its MP group; esp_groups: those of the MP
/// groups of all ranks in its ESP group.
enum class Tokens : uint8_t { own, mp_group, esp_groups };

/// The rows that a rank sends to the experts, and the collectives that carry them.
///   all_groups  rows of every group of tokens that it gates; AlltoAll over EP
///   over_esp    rows of its own group; AlltoAll over EP, then an AllGather over ESP
///   over_mp     as over_esp, with MP instead of ESP
///   fused       rows of its own group, to all ESP ranks of an EP peer; one AlltoAll over EP and ESP
enum class RowRoute : uint8_t { all_groups, over_esp, over_mp, fused };

struct FlowTraits {
  Flow flow;
  std::string_view name;
  Tokens holds;  // tokens whose input and output rows a rank has
  Tokens gates;  // tokens for which a rank chooses experts
  RowRoute way;
  bool one_group;      // MP and ESP are the same ranks
  bool home_by_peers;  // a plan may chunk the returning rows by EP peer instead of by row range (SAA)
  std::span<const TaskKind> forward, backward;  // stages that every row passes, in order; combine includes SAA's phases

  bool sends_all_groups() const { return way == RowRoute::all_groups; }
  bool fused() const { return way == RowRoute::fused; }
  /// Returns whether rows go to one rank of each EP peer, and the ranks that share its experts then gather them.
  bool through_peer() const { return way == RowRoute::over_esp || way == RowRoute::over_mp; }
  /// Whether, after the MoE part, MP ranks gather the tokens that each rank gated (gathers_tokens) or the rows that
  /// each rank sent (gathers_rows).
  bool gathers_tokens() const { return holds == Tokens::mp_group && gates == Tokens::own; }
  bool gathers_rows() const { return gates == Tokens::mp_group && !sends_all_groups(); }
  /// Returns the number of ranks that gate the same token and sum its gradients.
  int gate_copies(const ParallelShape& p) const { return gates == Tokens::esp_groups ? p.esp : 1; }
  /// Returns how many times the experts compute the same token.
  int expert_copies(const ParallelShape& p) const { return gates == Tokens::esp_groups ? p.mp : 1; }
};
const FlowTraits& traits_of(Flow flow);
std::string_view name_of(Flow flow);

/// Returns the group over which a kind of task communicates; none for a computation.
GroupKind group_of(Flow flow, TaskKind kind);
/// Returns the stages of the flow's rows in that phase: the traits' `forward` or `backward`.
std::span<const TaskKind> stages_of(Flow flow, Phase phase);

}  // namespace moe
