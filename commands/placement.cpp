#include "commands/placement.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "moe/base/json.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"

namespace moe::commands {
namespace {

constexpr size_t kShownGroups = 2;  // groups of each dimension in the table
constexpr int kShownRanks = 4;      // ranks of a group

/// Returns a group as text: "0-7", "0 8 16 24", "0 8 .. 56".
std::string group_text(const std::vector<int>& group) {
  const int size = static_cast<int>(group.size());
  if (size > 1 && group.back() - group.front() == size - 1) return fmt::format("{}-{}", group.front(), group.back());
  if (size <= kShownRanks) return fmt::format("{}", fmt::join(group, " "));
  return fmt::format("{} {} .. {}", group[0], group[1], group.back());
}

std::string group_text(const std::vector<std::vector<int>>& groups) {
  std::string text;
  for (size_t i = 0; i < std::min(groups.size(), kShownGroups); ++i)
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", group_text(groups[i]));
  return text + (groups.size() > kShownGroups ? " .." : "");
}

Json to_json(const PlacementRequest& r) {
  return {{"tp", r.tp},
          {"ep", r.ep},
          {"cp", r.cp},
          {"pp", r.pp},
          {"dp", r.dp},
          {"ranks_per_node", r.ranks_per_node},
          {"switch_ports", r.switch_ports}};
}

Json to_json(const PlacementRequest& request, const Placement& p) {
  Json json = to_json(request);
  json["expansion"] = name_of(p.expansion);
  json["reason"] = p.reason;
  json["ports_needed"] = p.ports_needed;
  const bool open = p.expansion == Expansion::open;
  const auto or_null = [&](int value) { return open ? Json() : Json(value); };
  json["ranks"] = or_null(p.ranks);
  json["ep_mini_batch"] = or_null(p.ep_mini_batch);
  json["dense_replicas"] = or_null(p.dense_replicas);
  json["expert_replicas"] = or_null(p.expert_replicas);
  json["order"] = Json::array();
  for (const PlacedDimension& d : p.dimensions)
    json["order"].push_back({{"name", d.name},
                             {"size", d.size},
                             {"stride", d.stride},
                             {"network", name_of(d.network)},
                             {"groups", groups_of(p, d)}});
  json["traffic_priority"] = traffic_priority(request);
  json["conflicts"] = Json::array();
  for (const TrafficConflict& c : traffic_conflicts(request))
    json["conflicts"].push_back({{"traffic", c.traffic}, {"meets", c.meets}, {"phase", c.phase}});
  return json;
}

void print_groups(const Placement& p) {
  Table table({"group", "size", "stride", "groups", "network", "ranks"});
  for (const PlacedDimension& d : p.dimensions) {
    const auto groups = groups_of(p, d);
    table.add({std::string(d.name), fmt::format("{}", d.size), fmt::format("{}", d.stride),
               fmt::format("{}", groups.size()), std::string(name_of(d.network)), group_text(groups)});
  }
  fmt::print("{} ranks in the order [TP/SP, EP, CP, PP, DP], TP/SP fastest\n\n{}\n", p.ranks, table.text());
  fmt::print("an EP group trains {} at once\n", counted(p.ep_mini_batch, "sequence"));
  fmt::print("gradients are summed over {} ranks (dense) and {} (an expert's)\n", p.dense_replicas, p.expert_replicas);
}

constexpr size_t kMeets = 12;  // columns before the traffic

void print_traffic(const PlacementRequest& request) {
  const std::vector<std::string_view> kinds = traffic_priority(request);
  if (kinds.size() < 2) return fmt::print("no two kinds of traffic meet between nodes\n");
  fmt::print("traffic that meets between nodes: {}\n", fmt::join(kinds, " before "));
  fmt::print("what can meet, where gradients or pipeline sends are asynchronous:\n");
  for (const TrafficConflict& c : traffic_conflicts(request))
    fmt::print("{}\n", line_within_columns(fmt::format("  {:<9} {} and {}", c.phase, c.traffic, c.meets), kMeets));
}

}  // namespace

int run_placement(const PlacementOptions& options) {
  const Placement placement = place(options.request);
  if (options.json) {
    fmt::print("{}\n", document_text(to_json(options.request, placement)));
    return 0;
  }
  fmt::print("{}\n", line_within_columns(fmt::format("{}: {}", name_of(placement.expansion), placement.reason)));
  if (placement.expansion != Expansion::open) print_groups(placement);
  print_traffic(options.request);
  return 0;
}

}  // namespace moe::commands
