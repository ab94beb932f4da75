#include "moe/shape/groups.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"

namespace moe {
namespace {

constexpr EnumArray<GroupKind, std::string_view, kGroupKinds> kKindNames{"none",   "ep", "esp",   "mp",    "dp", "edp",
                                                                         "ep-esp", "pp", "stage", "world", "cp"};
constexpr EnumArray<Network, std::string_view, 3> kNetworkNames{"none", "intra", "inter"};

struct Stride {
  int size, step;
};

// Returns a group's stride: its members' ranks differ by multiples of `step`.
Stride stride_of(const ParallelShape& p, GroupKind kind) {
  switch (kind) {
    case GroupKind::mp:
      return {p.mp, 1};
    case GroupKind::dp:
      return {p.replicas(), p.mp};
    case GroupKind::cp:
      return {p.cp, p.mp};
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

// Returns the smallest number of a group's ranks on one node, over all groups with this stride and all their nodes.
int fewest_on_node(const ParallelShape& p, const Stride& stride) {
  const auto [size, step] = stride;
  const int node = p.ranks_per_node, block = size * step;  // `step` groups share a block of consecutive ranks
  if (step >= node) return 1;
  if (block % node == 0 && node % step == 0) return node / step;
  int fewest = size;
  for (int begin = 0; begin < p.ranks(); begin += block)
    for (int first = begin; first < begin + step; ++first)
      for (int i = 0, on_node = 0; i < size; ++i) {
        ++on_node;
        const int rank = first + i * step;
        if (i + 1 < size && (rank + step) / node == rank / node) continue;
        fewest = std::min(fewest, on_node);
        on_node = 0;
      }
  return fewest;
}

}  // namespace

std::string_view name_of(GroupKind kind) { return kKindNames[kind]; }
std::string_view name_of(Network network) { return kNetworkNames[network]; }

int index_in_group(const ParallelShape& p, GroupKind kind, int rank) {
  const auto [size, step] = stride_of(p, kind);
  return rank / step % size;
}

std::vector<int> members(const ParallelShape& p, GroupKind kind, int rank) {
  require<BadInput>(rank >= 0 && rank < p.ranks(), "rank: found {}, expected 0 to {}", rank, p.ranks() - 1);
  const auto [size, step] = stride_of(p, kind);
  const int position = index_in_group(p, kind, rank);
  std::vector<int> ranks(size);
  for (int i = 0; i < size; ++i) ranks[i] = rank + (i - position) * step;
  return ranks;
}

Groups groups_of(const ParallelShape& p) {
  Groups groups;
  for (int k = 1; k < kGroupKinds; ++k) {
    const auto kind = static_cast<GroupKind>(k);
    Group& group = groups[k];
    const Stride stride = stride_of(p, kind);
    group = {kind, stride.size, Network::none};
    if (group.size == 1) continue;
    group.ranks_per_node = fewest_on_node(p, stride);
    group.network = group.ranks_per_node == group.size ? Network::intra : Network::inter;
  }
  return groups;
}

GroupNetworks networks_of(const Groups& groups) {
  GroupNetworks networks{};
  for (int kind = 0; kind < kGroupKinds; ++kind) networks[kind] = groups[kind].network;
  return networks;
}

namespace {

constexpr int kMaxPlaced = 1 << 20;
constexpr EnumArray<Expansion, std::string_view, 3> kExpansionNames{"horizontal", "vertical", "open"};
constexpr std::array<std::string_view, 4> kPriority{"EP", "PP", "CP", "DP"};
constexpr std::array<TrafficConflict, 4> kConflicts{{
    {"EP AlltoAll", "DP's AllReduce of the experts' W1 and W3 gradients", "backward"},
    {"CP exchange of keys and values", "DP's AllReduce of the post-attention linear's gradient", "backward"},
    {"PP send", "DP's AllReduce of the QKV gradient", "backward"},
    {"CP AllGather of the forward", "PP send of the backward, where PP is asynchronous", "forward"},
}};

// Returns the ranks of the EP and CP groups together: EP x CP, or CP if EP groups lie inside the CP group.
int span_of(const PlacementRequest& r) { return r.cp < r.ep ? r.ep * r.cp : r.cp; }

// DP traffic exists even if dp is 1, because gradients of the dense part are also summed over the ranks of EP and CP.
bool has_traffic(const PlacementRequest& r, std::string_view traffic) {
  const std::string_view kind = traffic.substr(0, 2);
  if (kind == "EP") return r.ep > 1;
  if (kind == "CP") return r.cp > 1;
  if (kind == "PP") return r.pp > 1;
  const bool of_experts = traffic.find("experts'") != std::string_view::npos;
  return span_of(r) / (of_experts ? r.ep : 1) * r.dp > 1;
}

void check(const PlacementRequest& r) {
  int64_t ranks = 1;
  for (const auto& [name, size] : {std::pair{"tp", r.tp}, {"ep", r.ep}, {"cp", r.cp}, {"pp", r.pp}, {"dp", r.dp}}) {
    require<BadInput>(size >= 1, "{}: found {}, expected a whole number >= 1", name, size);
    ranks = std::min<int64_t>(ranks * size, int64_t{kMaxPlaced} + 1);
  }
  require<BadInput>(ranks <= kMaxPlaced,
                    "tp x ep x cp x pp x dp: found {} x {} x {} x {} x {}, expected at most {} ranks", r.tp, r.ep, r.cp,
                    r.pp, r.dp, kMaxPlaced);
  require<BadInput>(r.ranks_per_node >= 1, "ranks per node: found {}, expected a whole number >= 1", r.ranks_per_node);
  require<BadInput>(r.ranks_per_node % r.tp == 0, "tp = {} does not divide ranks per node = {}: TP/SP stays in a node",
                    r.tp, r.ranks_per_node);
  require<BadInput>(r.switch_ports >= 1, "switch-ports: found {}, expected a whole number >= 1", r.switch_ports);
}

/// Sets the rule's decision for these sizes and the reason: expansion, number of ports and number of ranks.
void decide(const PlacementRequest& r, Placement& out) {
  const int product = r.ep * r.cp, larger = std::max(r.ep, r.cp);
  if (r.cp < r.ep) {
    out.ports_needed = product;
    if (r.switch_ports >= product) {
      out.expansion = Expansion::horizontal;
      out.reason = fmt::format(
          "cp {} < ep {}, and the switch's {} ports are enough for ep x cp = {}: EP and CP side by "
          "side",
          r.cp, r.ep, r.switch_ports, product);
      return;
    }
    out.reason = fmt::format(
        "cp {} < ep {}, but ep x cp = {} ports are more than the switch's {}: the paper does not say what to do; a "
        "larger switch, a smaller cp, or cp >= ep would decide it",
        r.cp, r.ep, product, r.switch_ports);
    return;
  }
  out.ports_needed = larger;
  if (r.switch_ports < larger) {
    out.reason = fmt::format(
        "cp {} >= ep {} asks for EP inside CP, but max(ep, cp) = {} ports are more than the switch's {}: the paper "
        "does "
        "not say what to do",
        r.cp, r.ep, larger, r.switch_ports);
    return;
  }
  if (r.cp % r.ep != 0) {
    out.reason = fmt::format(
        "cp {} >= ep {} asks for EP inside CP, but EP groups of {} do not fill a CP group of {}: the paper does not "
        "say "
        "what to do",
        r.cp, r.ep, r.ep, r.cp);
    return;
  }
  out.expansion = Expansion::vertical;
  out.reason = fmt::format("cp {} >= ep {}: EP inside CP, on max(ep, cp) = {} of the switch's {} ports", r.cp, r.ep,
                           larger, r.switch_ports);
}

// Returns inter if any group of that size and stride spans nodes.
Network network_of(int size, int stride, int ranks, int ranks_per_node) {
  if (size == 1) return Network::none;
  for (int first = 0; first < ranks; ++first) {
    if (first / stride % size != 0) continue;
    const int last = first + (size - 1) * stride;
    if (first / ranks_per_node != last / ranks_per_node) return Network::inter;
  }
  return Network::intra;
}

void lay_out(const PlacementRequest& r, Placement& out) {
  const bool vertical = out.expansion == Expansion::vertical;
  const int span = span_of(r);
  out.ranks = r.tp * span * r.pp * r.dp;
  const auto add = [&](std::string_view name, int size, int stride) {
    out.dimensions.push_back({name, size, stride, network_of(size, stride, out.ranks, r.ranks_per_node)});
  };
  add("TP/SP", r.tp, 1);
  add("EP", r.ep, r.tp);
  add("CP", r.cp, vertical ? r.tp : r.tp * r.ep);
  add("PP", r.pp, r.tp * span);
  add("DP", r.dp, r.tp * span * r.pp);
  out.ep_mini_batch = vertical ? 1 : r.ep;
  out.dense_replicas = span * r.dp;
  out.expert_replicas = span / r.ep * r.dp;
}

}  // namespace

std::string_view name_of(Expansion expansion) { return kExpansionNames[expansion]; }

std::vector<std::string_view> traffic_priority(const PlacementRequest& request) {
  std::vector<std::string_view> kinds;
  std::ranges::copy_if(kPriority, std::back_inserter(kinds), [&](auto kind) { return has_traffic(request, kind); });
  return kinds;
}

std::vector<TrafficConflict> traffic_conflicts(const PlacementRequest& request) {
  std::vector<TrafficConflict> conflicts;
  std::ranges::copy_if(kConflicts, std::back_inserter(conflicts), [&](const TrafficConflict& c) {
    return has_traffic(request, c.traffic) && has_traffic(request, c.meets);
  });
  return conflicts;
}

Placement place(const PlacementRequest& request) {
  check(request);
  Placement out;
  decide(request, out);
  if (out.expansion != Expansion::open) lay_out(request, out);
  return out;
}

std::vector<std::vector<int>> groups_of(const Placement& placement, const PlacedDimension& d) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    if (rank / d.stride % d.size != 0) continue;
    std::vector<int>& group = groups.emplace_back();
    for (int i = 0; i < d.size; ++i) group.push_back(rank + i * d.stride);
  }
  return groups;
}

}  // namespace moe
