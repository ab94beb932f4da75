#include "moe/plan/groups.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr std::array<std::string_view, kGroupKinds> kKindNames{"none", "ep",     "esp", "mp",    "dp",
                                                               "edp",  "ep-esp", "pp",  "stage", "world"};
constexpr std::array<std::string_view, 3> kNetworkNames{"none", "intra", "inter"};

struct Stride {
  int size, step;
};

// Returns a group's stride: its members differ by multiples of `step` in their rank.
Stride stride_of(const ParallelShape& p, GroupKind kind) {
  switch (kind) {
    case GroupKind::mp:
      return {p.mp, 1};
    case GroupKind::dp:
      return {p.dp, p.mp};
    case GroupKind::esp:
      return {p.esp, p.ep_inside ? p.ep : 1};
    case GroupKind::ep:
      return {p.ep, p.ep_inside ? 1 : p.esp};
    case GroupKind::edp:
      return {p.edp, p.ep * p.esp};
    case GroupKind::ep_esp:
      return {p.ep * p.esp, 1};
    case GroupKind::pp:
      return {p.pp, p.ranks() / p.pp};
    case GroupKind::stage:
      return {p.ranks() / p.pp, 1};
    case GroupKind::world:
      return {p.ranks(), 1};
    case GroupKind::none:
      break;
  }
  return {1, 1};
}

}  // namespace

std::string_view name_of(GroupKind kind) { return kKindNames[static_cast<size_t>(kind)]; }
std::string_view name_of(Network network) { return kNetworkNames[static_cast<size_t>(network)]; }

int place_in(const ParallelShape& p, GroupKind kind, int rank) {
  const auto [size, step] = stride_of(p, kind);
  return rank / step % size;
}

std::vector<int> members(const ParallelShape& p, GroupKind kind, int rank) {
  require<BadInput>(rank >= 0 && rank < p.ranks(), "rank: found {}, expected 0 to {}", rank, p.ranks() - 1);
  const auto [size, step] = stride_of(p, kind);
  const int position = place_in(p, kind, rank);
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) ranks[static_cast<size_t>(i)] = rank + (i - position) * step;
  return ranks;
}

Groups groups_of(const ParallelShape& p) {
  Groups groups;
  for (int k = 1; k < kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    Group& group = groups[static_cast<size_t>(k)];
    group = {kind, stride_of(p, kind).size, Network::none};
    if (group.size == 1) continue;
    group.network = Network::intra;
    const auto [size, step] = stride_of(p, kind);
    for (int rank = 0; rank < p.ranks() && group.network == Network::intra; ++rank) {
      const int first = rank - rank / step % size * step, last = first + (size - 1) * step;
      if (first / p.ranks_per_node != last / p.ranks_per_node) group.network = Network::inter;
    }
  }
  return groups;
}

}  // namespace moe
