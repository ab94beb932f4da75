#include "moe/comm/gloo/detail/bootstrap.h"

#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

std::vector<gloo::PeerInfo> peers_of(const std::vector<std::string>& machines) {
  std::vector<gloo::PeerInfo> all;
  for (const auto& machine : machines) all.push_back({"1", "job", "0", "host-" + machine, machine});
  return all;
}

TEST(RankingTest, RanksOfAMachineBecomeNeighboursInOrderOfAppearance) {
  const gloo::Ranking ranking = gloo::assign_ranks_by_node(peers_of({"b", "a", "a", "b"}), 0);
  EXPECT_EQ(ranking.world_rank, (std::vector<int>{0, 2, 3, 1}));
  EXPECT_EQ(ranking.nodes, 2);
  EXPECT_EQ(ranking.ranks_per_node, 2);
  EXPECT_FALSE(ranking.one_machine);
}

TEST(RankingTest, AMachineMayStandForSeveralNodes) {
  const gloo::Ranking ranking = gloo::assign_ranks_by_node(peers_of({"a", "a", "a", "a"}), 2);
  EXPECT_EQ(ranking.nodes, 2);
  EXPECT_EQ(ranking.ranks_per_node, 2);
  EXPECT_TRUE(ranking.one_machine);
  EXPECT_EQ(gloo::assign_ranks_by_node(peers_of({"a", "b", "a", "b", "a", "a"}), 2).world_rank,
            (std::vector<int>{0, 4, 1, 5, 2, 3}));
}

TEST(RankingTest, UnequalNodesAreNamed) {
  const std::string error = error_of<BadInput>([] { gloo::assign_ranks_by_node(peers_of({"a", "a", "b"}), 0); });
  EXPECT_NE(error.find("host-a holds 2, host-b holds 1"), std::string::npos) << error;
  EXPECT_THROW(gloo::assign_ranks_by_node(peers_of({"a", "a", "a"}), 2), BadInput);
}

}  // namespace
}  // namespace moe
