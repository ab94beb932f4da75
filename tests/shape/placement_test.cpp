// MoNTA's placement rule, and its groups against coordinates written out rank by rank.
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <tuple>

#include "moe/base/check.h"
#include "moe/shape/groups.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

TEST(Placement, FollowsTheRule) {
  const auto answer = [](int ep, int cp, int ports) {
    const Placement p = place({.ep = ep, .cp = cp, .switch_ports = ports});
    return std::tuple{p.expansion, p.ports_needed, p.ep_mini_batch};
  };
  using enum Expansion;
  EXPECT_EQ(answer(8, 4, 32), std::tuple(horizontal, 32, 8)) << "MoNTA, Fig. 12: 8 nodes an EP group";
  EXPECT_EQ(answer(8, 4, 31), std::tuple(open, 32, 0)) << "left open";
  EXPECT_EQ(answer(8, 8, 8), std::tuple(vertical, 8, 1));
  EXPECT_EQ(answer(8, 8, 64), std::tuple(vertical, 8, 1)) << "cp >= ep, whatever the switch has";
  EXPECT_EQ(answer(8, 16, 16), std::tuple(vertical, 16, 1));
  EXPECT_EQ(answer(8, 16, 15), std::tuple(open, 16, 0));
  EXPECT_EQ(answer(8, 12, 64), std::tuple(open, 12, 0)) << "EP groups do not fill a CP group";
  EXPECT_EQ(answer(8, 1, 8), std::tuple(horizontal, 8, 8)) << "no context parallelism";
  EXPECT_EQ(answer(1, 4, 4), std::tuple(vertical, 4, 1));
}

TEST(Placement, OpenSaysWhatIsMissing) {
  const Placement p = place({.ep = 8, .cp = 4, .switch_ports = 16});
  EXPECT_NE(p.reason.find("32 ports are more than the switch's 16"), std::string::npos) << p.reason;
  EXPECT_NE(p.reason.find("the paper does not say"), std::string::npos) << p.reason;
  EXPECT_TRUE(p.dimensions.empty());
  EXPECT_EQ(p.ranks, 0);
}

/// Every rank's coordinates by nested loops, in the paper's order; `ep_inside_cp`: a rank's EP coordinate is the CP
/// coordinate's remainder.
std::map<std::string_view, std::set<std::vector<int>>> written_out(const PlacementRequest& r, bool ep_inside_cp) {
  std::map<std::string_view, std::map<std::vector<int>, std::vector<int>>> groups;
  int rank = 0;
  for (int dp = 0; dp < r.dp; ++dp)
    for (int pp = 0; pp < r.pp; ++pp)
      for (int cp = 0; cp < r.cp; ++cp)
        for (int ep = 0; ep < (ep_inside_cp ? 1 : r.ep); ++ep)
          for (int tp = 0; tp < r.tp; ++tp, ++rank) {
            groups["TP/SP"][{dp, pp, cp, ep}].push_back(rank);
            groups["CP"][{dp, pp, ep, tp}].push_back(rank);
            groups["EP"][ep_inside_cp ? std::vector{dp, pp, cp / r.ep, tp} : std::vector{dp, pp, cp, tp}].push_back(
                rank);
            groups["PP"][{dp, cp, ep, tp}].push_back(rank);
            groups["DP"][{pp, cp, ep, tp}].push_back(rank);
          }
  std::map<std::string_view, std::set<std::vector<int>>> out;
  for (const auto& [name, candidates_by_key] : groups)
    for (const auto& [key, ranks] : candidates_by_key) out[name].insert(ranks);
  return out;
}

TEST(Placement, GroupsAreTheCoordinatesWrittenOut) {
  for (const int tp : {1, 2, 4})
    for (const int ep : {1, 2, 4})
      for (const int cp : {1, 2, 3, 4, 8})
        for (const int pp : {1, 2})
          for (const int dp : {1, 3}) {
            const PlacementRequest r{tp, ep, cp, pp, dp, 4, 64};
            const Placement p = place(r);
            if (p.expansion == Expansion::open) {
              EXPECT_NE(cp % ep, 0);
              continue;
            }
            const auto expected = written_out(r, p.expansion == Expansion::vertical);
            ASSERT_EQ(p.dimensions.size(), 5u);
            for (const PlacedDimension& d : p.dimensions) {
              const auto found = groups_of(p, d);
              EXPECT_EQ(std::set(found.begin(), found.end()), expected.at(d.name))
                  << d.name << ": tp " << tp << " ep " << ep << " cp " << cp << " pp " << pp << " dp " << dp;
              Network network = d.size == 1 ? Network::none : Network::intra;
              for (const auto& group : found)
                if (group.front() / 4 != group.back() / 4) network = Network::inter;
              EXPECT_EQ(d.network, network) << d.name;
            }
          }
}

TEST(Placement, ReplicasAreTheRanksWithTheSameWeights) {
  for (const auto& [ep, cp] : {std::pair{4, 2}, {4, 4}, {2, 8}}) {
    const PlacementRequest r{.tp = 2, .ep = ep, .cp = cp, .pp = 2, .dp = 3, .switch_ports = 64};
    const Placement p = place(r);
    // A dense weight is sharded over TP and PP alone, an expert over TP, PP and EP.
    EXPECT_EQ(p.dense_replicas * r.tp * r.pp, p.ranks);
    EXPECT_EQ(p.expert_replicas * r.tp * r.pp * r.ep, p.ranks);
  }
}

TEST(Placement, PriorityIsThePapers) {
  const PlacementRequest all{.ep = 8, .cp = 4, .pp = 2, .dp = 2};
  EXPECT_EQ(traffic_priority(all), (std::vector<std::string_view>{"EP", "PP", "CP", "DP"}));
  int backward = 0;
  for (const TrafficConflict& conflict : traffic_conflicts(all)) backward += conflict.phase == "backward";
  EXPECT_EQ(backward, 3) << "EP with W1/W3, CP with the post-attention linear, PP with QKV";
}

TEST(Placement, GroupsOfOneHaveNoTraffic) {
  const PlacementRequest no_pipeline{.ep = 8, .cp = 4};
  EXPECT_EQ(traffic_priority(no_pipeline), (std::vector<std::string_view>{"EP", "CP", "DP"}))
      << "dense gradients are summed over EP and CP";
  for (const TrafficConflict& c : traffic_conflicts(no_pipeline))
    EXPECT_FALSE(c.traffic.starts_with("PP") || c.meets.starts_with("PP")) << c.traffic << ", " << c.meets;
  EXPECT_EQ(traffic_conflicts(no_pipeline).size(), 2u);
  EXPECT_TRUE(traffic_conflicts({.ep = 8}).empty()) << "an expert's gradients are summed over no other rank";
  EXPECT_EQ(traffic_priority({.tp = 8}), std::vector<std::string_view>{});
  EXPECT_TRUE(traffic_conflicts({.tp = 8}).empty());
}

TEST(Placement, BadSizesAreNamed) {
  const auto message = [](const PlacementRequest& r) { return error_of<BadInput>([&] { place(r); }); };
  EXPECT_EQ(message({.ep = 0, .switch_ports = 8}), "ep: found 0, expected a whole number >= 1");
  EXPECT_EQ(message({.ep = 2}), "switch-ports: found 0, expected a whole number >= 1");
  EXPECT_EQ(message({.tp = 3, .ep = 2, .switch_ports = 8}),
            "tp = 3 does not divide ranks per node = 8: TP/SP stays in a node");
  EXPECT_EQ(message({.ep = 100000, .cp = 100000, .pp = 100000, .dp = 100000, .switch_ports = 8}),
            "tp x ep x cp x pp x dp: found 8 x 100000 x 100000 x 100000 x 100000, expected at most 1048576 ranks");
}

}  // namespace
}  // namespace moe
