#pragma once
// Parallel groups: which ranks talk to each other, and over which network.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/shape/shape.h"

namespace moe {

/// The kinds of groups. dp: the ranks with the same dense weights (DP and CP together); cp: the ranks that share each
/// sample; ep_esp: EP and ESP together; pp: the ranks at the same position of every stage, of which only neighbouring
/// stages communicate; stage: all ranks of a stage; world: all ranks.
enum class GroupKind { none, ep, esp, mp, dp, edp, ep_esp, pp, stage, world, cp };
inline constexpr int kGroupKinds = 11;
std::string_view name_of(GroupKind kind);

/// The network that a group communicates over. none: a group of one rank; inter: the group spans nodes.
enum class Network { none, intra, inter };
std::string_view name_of(Network network);

/// Returns the position of `rank` in its group of that kind.
int index_in_group(const ParallelShape& parallel, GroupKind kind, int rank);
/// Returns the ranks of `rank`'s group of that kind in ascending order.
std::vector<int> members(const ParallelShape& parallel, GroupKind kind, int rank);

struct Group {
  GroupKind kind = GroupKind::none;
  int size = 1;
  Network network = Network::none;
  int ranks_per_node = 1;  // the fewest of its ranks that one of its nodes has, over all groups of the kind
  bool operator==(const Group&) const = default;
};

/// One row per GroupKind, indexed by it. A group is inter if it spans nodes for any rank.
using Groups = EnumArray<GroupKind, Group, kGroupKinds>;
Groups groups_of(const ParallelShape& parallel);

/// The network of each group.
using GroupNetworks = EnumArray<GroupKind, Network, kGroupKinds>;
GroupNetworks networks_of(const Groups& groups);

/// The properties of a layer that decide a plan's structure.
struct LayerOutline {
  Groups groups;
  bool shared_expert = false;
  bool dense = false;       // no experts (moe/shape/dense_layers.h)
  bool recomputes = false;  // the backward starts by repeating the forward
  int ring_blocks = 0;      // number of blocks of keys and values in a CP ring (ParallelShape::ring_blocks); 0: no ring
};
/// Returns how many times an iteration runs the forward of a layer for each micro-batch.
inline int forwards_of(const LayerOutline& layer) { return layer.recomputes ? 2 : 1; }
inline LayerOutline outline_of(const LayerCase& shape) {
  const bool dense = shape.layer.experts == 0;
  return {groups_of(shape.parallel), !dense && shape.layer.shared_hidden > 0, dense,
          shape.parallel.recompute == Recompute::full, shape.parallel.ring_blocks()};
}

// The placement of context parallelism and expert parallelism for training with long contexts (MoNTA, "Cluster
// Expansion" and "Communication Conflict").
//
// Ranks are numbered in the order [TP/SP, EP, CP, PP, DP], TP/SP fastest. TP/SP groups stay inside a node; EP and CP
// groups consist of the GPUs with the same TP position on different nodes and use the network between nodes. A port is
// the connection of one GPU to the switch that joins all GPUs of its TP position.

/// Sizes of the groups, each >= 1. tp divides ranks_per_node.
struct PlacementRequest {
  int tp = 8, ep = 1, cp = 1, pp = 1, dp = 1;
  int ranks_per_node = 8;
  int switch_ports = 0;
};

/// The outcomes of the rule.
/// horizontal  cp < ep, and a switch of at least ep cp ports: EP and CP are orthogonal, an EP group trains ep sequences
/// vertical    cp >= ep: EP groups lie inside CP groups, cp / ep of them; an EP group trains one sequence
///             (mini-batch 1), and the switch needs max(ep, cp) ports
/// open        the paper gives no answer; `reason` says what is missing
enum class Expansion : uint8_t { horizontal, vertical, open };
std::string_view name_of(Expansion expansion);

/// One dimension of the order. The group of rank r contains r and all ranks that differ from r only in the coordinate
/// (r / stride) % size.
struct PlacedDimension {
  std::string_view name;  // TP/SP EP CP PP DP
  int size = 1;
  int stride = 1;
  Network network = Network::none;
};

struct Placement {
  Expansion expansion = Expansion::open;
  int ports_needed = 0;     // ports that the form of the rule needs
  int ep_mini_batch = 0;    // sequences that one EP group trains at the same time; 0: open
  int ranks = 0;            // total number: tp ep cp pp dp if horizontal, tp cp pp dp if vertical; 0: open
  int dense_replicas = 0;   // ranks with the same dense weights, over which gradients are summed; 0: open
  int expert_replicas = 0;  // ranks with the same expert weights; if vertical, each CP group contains cp / ep of them
  std::string reason;
  std::vector<PlacedDimension> dimensions;  // in the paper's order; empty if open
};

/// Applies the paper's rule. Throws BadInput for sizes below 1, a tp that does not divide ranks_per_node, and more than
/// 2^20 ranks.
Placement place(const PlacementRequest& request);

/// Returns the groups of one dimension, each ascending, ordered by their first rank.
std::vector<std::vector<int>> groups_of(const Placement& placement, const PlacedDimension& dimension);

/// Returns the kinds of traffic between nodes that these groups cause, highest priority on a link first: a subset of
/// EP, PP, CP, DP in this order (MoNTA, "Communication Conflict").
std::vector<std::string_view> traffic_priority(const PlacementRequest& request);

/// Two kinds of traffic that can compete for a link (MoNTA, Fig. 11), and the phase in which they do: "forward" or
/// "backward". `traffic` and `meets` begin with the group: EP, CP, PP or DP.
struct TrafficConflict {
  std::string_view traffic, meets, phase;
};
/// Returns the conflicts that are possible with these groups, because both kinds of traffic exist.
std::vector<TrafficConflict> traffic_conflicts(const PlacementRequest& request);

}  // namespace moe
