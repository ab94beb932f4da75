// Parallel groups against the factorisations written out as loops.
#include "moe/shape/groups.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/check.h"

namespace moe {
namespace {

std::vector<int> divisors(int n) {
  std::vector<int> found;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

// Every shape of these nodes and ranks a node that divides.
std::vector<ParallelShape> shapes() {
  std::vector<ParallelShape> all;
  for (const int nodes : {1, 2, 3, 4, 8})
    for (const int ranks_per_node : {1, 2, 4, 6})
      for (const int pp : divisors(nodes * ranks_per_node)) {
        const int stage = nodes * ranks_per_node / pp;
        for (const int mp : divisors(stage))
          for (const int ep : divisors(stage))
            for (const int esp : divisors(stage / ep))
              for (const int cp : divisors(stage / mp))
                all.push_back({nodes, ranks_per_node, stage / mp / cp, mp, ep, esp, pp, stage / ep / esp, cp});
      }
  return all;
}

std::string text_of(const ParallelShape& p) {
  return fmt::format("{} nodes x {}, pp {} dp {} cp {} mp {} edp {} ep {} esp {}", p.nodes, p.ranks_per_node, p.pp,
                     p.dp, p.cp, p.mp, p.edp, p.ep, p.esp);
}

using Members = std::map<GroupKind, std::vector<std::vector<int>>>;  // by rank

// Ranks numbered as documented: ((pp N_DP + dp) N_CP + cp) N_MP + mp, and inside a stage (edp N_EP + ep) N_ESP + esp.
Members members_by_loops(const ParallelShape& p) {
  std::map<std::tuple<GroupKind, int, int, int>, std::vector<int>> groups;  // stage and the other two coordinates
  std::map<std::pair<GroupKind, int>, std::tuple<GroupKind, int, int, int>> key_of;
  const auto enter = [&](GroupKind kind, int pp, int a, int b, int rank) {
    groups[{kind, pp, a, b}].push_back(rank);
    key_of[{kind, rank}] = {kind, pp, a, b};
  };
  for (int pp = 0, rank = 0; pp < p.pp; ++pp)
    for (int dp = 0; dp < p.dp; ++dp)
      for (int cp = 0; cp < p.cp; ++cp)
        for (int mp = 0; mp < p.mp; ++mp, ++rank) {
          enter(GroupKind::mp, pp, dp, cp, rank);
          enter(GroupKind::cp, pp, dp, mp, rank);
          enter(GroupKind::dp, pp, mp, 0, rank);
        }
  for (int pp = 0, rank = 0; pp < p.pp; ++pp)
    for (int edp = 0; edp < p.edp; ++edp)
      for (int ep = 0; ep < p.ep; ++ep)
        for (int esp = 0; esp < p.esp; ++esp, ++rank) {
          enter(GroupKind::esp, pp, edp, ep, rank);
          enter(GroupKind::ep, pp, edp, esp, rank);
          enter(GroupKind::edp, pp, ep, esp, rank);
        }
  Members members;
  for (const auto& [place, key] : key_of) {
    auto& of_kind = members[place.first];
    of_kind.resize(p.ranks());
    of_kind[place.second] = groups[key];
  }
  return members;
}

TEST(Groups, AreThoseOfTheLoopsForEveryShape) {
  int compared = 0;
  for (const ParallelShape& p : shapes())
    for (const auto& [kind, by_rank] : members_by_loops(p))
      for (int rank = 0; rank < p.ranks(); ++rank, ++compared)
        ASSERT_EQ(members(p, kind, rank), by_rank[rank])
            << name_of(kind) << " group of rank " << rank << ", " << text_of(p);
  EXPECT_GT(compared, 10000);
}

TEST(Groups, NetworkAndRanksPerNodeAreThoseOfTheRanks) {
  int uneven = 0;
  std::map<Network, int> seen;
  for (const ParallelShape& p : shapes()) {
    const Groups groups = groups_of(p);
    for (const auto& [kind, by_rank] : members_by_loops(p)) {
      Network expected = by_rank[0].size() == 1 ? Network::none : Network::intra;
      int fewest = p.ranks();
      for (const auto& ranks : by_rank) {
        std::map<int, int> nodes;
        for (const int rank : ranks) ++nodes[rank / p.ranks_per_node];
        if (nodes.size() > 1) expected = Network::inter;
        for (const auto& [node, on_node] : nodes) fewest = std::min(fewest, on_node);
        uneven += nodes.size() > 1 && nodes.begin()->second != nodes.rbegin()->second;
      }
      const Group& group = groups[kind];
      ASSERT_EQ(group.network, expected) << name_of(kind) << ", " << text_of(p);
      ASSERT_EQ(group.size, static_cast<int>(by_rank[0].size())) << name_of(kind) << ", " << text_of(p);
      ASSERT_EQ(group.ranks_per_node, fewest) << name_of(kind) << ", " << text_of(p);
      ASSERT_EQ(group.kind, kind);
      ++seen[expected];
    }
    EXPECT_EQ(groups[0], Group{}) << "the group of one rank";
  }
  for (const Network network : {Network::none, Network::intra, Network::inter}) EXPECT_GT(seen[network], 100);
  EXPECT_GT(uneven, 100);
}

TEST(Groups, PapersCaseKeepsShardingInsideANode) {
  const LayerCase c = complete({}, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged);
  const ParallelShape expected{8, 4, 8, 4, 8, 4, 1, 1};
  EXPECT_EQ(c.parallel, expected);
  const Groups groups = groups_of(c.parallel);
  const auto network = [&](GroupKind kind) { return groups[kind].network; };
  EXPECT_EQ(network(GroupKind::mp), Network::intra);
  EXPECT_EQ(network(GroupKind::esp), Network::intra);
  EXPECT_EQ(network(GroupKind::ep), Network::inter);
  EXPECT_EQ(network(GroupKind::dp), Network::inter);
  EXPECT_EQ(network(GroupKind::edp), Network::none);
  EXPECT_EQ(members(c.parallel, GroupKind::ep, 6), (std::vector<int>{2, 6, 10, 14, 18, 22, 26, 30}));
}

TEST(Groups, RefuseRanksThatDoNotExist) {
  const ParallelShape p = complete({}, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged).parallel;
  EXPECT_THROW(members(p, GroupKind::mp, -1), BadInput);
  EXPECT_THROW(members(p, GroupKind::mp, 4), BadInput);
}

// Every completed shape covers the same ranks with both factorisations, or is refused.
TEST(Groups, CompletedShapesFactoriseAllRanks) {
  int complete_shapes = 0, refused = 0;
  for (const int nodes : {1, 2, 3, 4})
    for (const int ranks_per_node : {1, 2, 4})
      for (const int pp : {1, 2, 3})
        for (const int mp : {0, 1, 2, 3, 4})
          for (const int ep : {0, 1, 2, 4})
            for (const int esp : {0, 1, 2, 4}) {
              LayerShape layer{.experts = 4};
              ParallelShape asked{
                  .nodes = nodes, .ranks_per_node = ranks_per_node, .mp = mp, .ep = ep, .esp = esp, .pp = pp};
              try {
                const ParallelShape p = complete(layer, asked, Rounding::ragged).parallel;
                ASSERT_EQ(p.pp * p.dp * p.mp, p.ranks()) << text_of(p);
                ASSERT_EQ(p.pp * p.ep * p.esp * p.edp, p.ranks()) << text_of(p);
                ASSERT_TRUE((mp == 0 || p.mp == mp) && (ep == 0 || p.ep == ep) && (esp == 0 || p.esp == esp));
                ++complete_shapes;
              } catch (const BadInput&) {
                ++refused;
              }
            }
  EXPECT_GT(complete_shapes, 200);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace moe
