#pragma once
// Parallel groups: which ranks talk to each other, and over which network.
#include <array>
#include <string_view>
#include <vector>

#include "moe/plan/shape.h"

namespace moe {

/// Names the kinds of groups. ep_esp: EP and ESP together; pp: the ranks of all stages at one place, of which
/// neighbours talk; stage: all ranks of a stage; world: those of all stages.
enum class GroupKind { none, ep, esp, mp, dp, edp, ep_esp, pp, stage, world };
inline constexpr int kGroupKinds = 10;
std::string_view name_of(GroupKind kind);

/// Says which network a group talks over. none: a group of one rank, over which nothing is sent; inter: the group spans
/// nodes.
enum class Network { none, intra, inter };
std::string_view name_of(Network network);

/// Returns the position of `rank` in its group of that kind.
int place_in(const ParallelShape& parallel, GroupKind kind, int rank);
/// Returns the ranks of `rank`'s group of that kind, ascending.
std::vector<int> members(const ParallelShape& parallel, GroupKind kind, int rank);

struct Group {
  GroupKind kind = GroupKind::none;
  int size = 1;
  Network network = Network::none;
  bool operator==(const Group&) const = default;
};

/// Holds one row a GroupKind, indexed by it. A group is inter if it spans nodes for any rank.
using Groups = std::array<Group, kGroupKinds>;
Groups groups_of(const ParallelShape& parallel);

/// Holds all of a layer that a plan's structure depends on.
struct LayerOutline {
  Groups groups;
  bool shared_expert = false;
  bool dense = false;       // it has no experts (moe/plan/dense_layers.h)
  bool recomputes = false;  // its backward begins with its forward
};
/// Counts how often a training pass runs the layer's forward.
inline int forwards_of(const LayerOutline& layer) { return layer.recomputes ? 2 : 1; }
inline LayerOutline outline_of(const LayerCase& shape) {
  const bool dense = shape.layer.experts == 0;
  return {groups_of(shape.parallel), !dense && shape.layer.shared_hidden > 0, dense,
          shape.parallel.recompute == Recompute::full};
}

}  // namespace moe
