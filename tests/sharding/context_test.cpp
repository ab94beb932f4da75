// Context parallelism: which tokens of a sample a rank has.
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "moe/sharding/rank_shape.h"

namespace moe {
namespace {

RankShape placed(int cp, int mp, int rank) {
  const LayerShape layer{.batch = 3, .seq = 24, .model_dim = 16, .hidden = 16, .heads = 4, .experts = 4};
  ParallelShape parallel{.nodes = 2, .ranks_per_node = 4, .mp = mp, .ep = 2, .esp = 1};
  parallel.cp = cp;
  return rank_shape(complete(layer, parallel, Rounding::ragged), rank);
}

TEST(Context, RanksHaveAllTokensOnce) {
  for (const int cp : {1, 2, 4})
    for (const int mp : {1, 2}) {
      std::set<int64_t> all;
      for (int rank = 0; rank < 8; ++rank) {
        const RankShape shape = placed(cp, mp, rank);
        for (int64_t t = shape.tokens.first; t < shape.tokens.first + shape.tokens.count; ++t)
          EXPECT_TRUE(all.insert(sample_order_index(shape.shape, t)).second)
              << "cp " << cp << " mp " << mp << " token " << t;
      }
      EXPECT_EQ(static_cast<int64_t>(all.size()), int64_t{8} / cp / mp * 3 * 24) << "B L of each of DP";
      EXPECT_EQ(*all.rbegin() + 1, static_cast<int64_t>(all.size()));
    }
}

// Of 24 tokens over 4 ranks each has two pieces of 3: rank 1 the second and the last but one.
TEST(Context, PiecesAreAsFarFromTheFrontAsFromTheBack) {
  const RankShape second = placed(4, 1, 1);
  ASSERT_EQ(second.mp_group(), (ShardRange{18, 18, 144}));
  std::vector<int64_t> places;
  for (int64_t t = 18; t < 36; ++t) places.push_back(sample_order_index(second.shape, t));
  const std::vector<int64_t> first{3, 4, 5, 18, 19, 20}, expected = [&] {
    std::vector<int64_t> of_samples;
    for (int64_t sample = 0; sample < 3; ++sample)
      for (const int64_t place : first) of_samples.push_back(24 * sample + place);
    return of_samples;
  }();
  EXPECT_EQ(places, expected);
}

// Under a causal mask a token sees as many as its place; the sums are alike.
TEST(Context, RanksComputeAsManyScores) {
  std::set<int64_t> sums;
  for (int rank = 0; rank < 4; ++rank) {
    const RankShape shape = placed(4, 1, rank);
    int64_t sum = 0;
    for (int64_t t = shape.tokens.first; t < shape.tokens.first + shape.tokens.count; ++t)
      sum += sample_order_index(shape.shape, t) % 24 + 1;
    sums.insert(sum);
  }
  EXPECT_EQ(sums.size(), 1U);
}

}  // namespace
}  // namespace moe
