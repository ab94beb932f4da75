// Shares of weights: every element is in one rank's share, and is where its place in the whole says.
#include <gtest/gtest.h>
#include <map>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/sharding/layer_buffers.h"

namespace moe {
namespace {

TEST(WeightShare, TakesEveryElementOnceWhereTheAxesSay) {
  int empty = 0;
  for (uint64_t draw = 0; draw < 300; ++draw) {
    const auto pick = [&](uint64_t stream, int64_t most) {
      return 1 + static_cast<int64_t>(random_bits(3, stream, draw) % static_cast<uint64_t>(most));
    };
    std::array<ShardRange, 3> part{};
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t count = draw % 5 == axis ? 1 : pick(axis, 9), first = pick(10 + axis, 4) - 1;
      part[axis] = {first, count, first + count + 2};
    }
    const int ranks = static_cast<int>(pick(20, 6));
    std::map<int64_t, int> taken;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto [axes, own] = weight_share(part, rank, ranks);
      empty += own.count == 0;
      int64_t at = 0;  // of the share's elements, row-major
      for (int64_t i = axes[0].first; i < axes[0].first + axes[0].count; ++i)
        for (int64_t j = axes[1].first; j < axes[1].first + axes[1].count; ++j)
          for (int64_t k = axes[2].first; k < axes[2].first + axes[2].count; ++k, ++at) {
            const int64_t local =
                ((i - part[0].first) * part[1].count + j - part[1].first) * part[2].count + k - part[2].first;
            ASSERT_EQ(at / own.count * own.every + own.first + at % own.count, local) << "draw " << draw;
            ++taken[local];
          }
      for (size_t axis = 0; axis < 3; ++axis) EXPECT_EQ(axes[axis].total, part[axis].total);
    }
    ASSERT_EQ(static_cast<int64_t>(taken.size()), part[0].count * part[1].count * part[2].count);
    for (const auto& [element, times] : taken) ASSERT_EQ(times, 1) << "draw " << draw << ", element " << element;
  }
  EXPECT_GT(empty, 0) << "no part with fewer rows than ranks was drawn";
}

TEST(WeightShare, OfAPartWithoutRowsHasNoElements) {
  const std::array<ShardRange, 3> part{ShardRange{0, 1, 1}, {1, 0, 1}, {0, 64, 64}};
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(weight_share(part, rank, 2).elements.count, 0);
}

TEST(WeightShare, OfNoRankIsRefused) {
  const std::array<ShardRange, 3> part{ShardRange{0, 1, 1}, {0, 4, 4}, {0, 4, 4}};
  EXPECT_THROW(weight_share(part, 2, 2), BadInput);
  EXPECT_THROW(weight_share(part, -1, 2), BadInput);
}

}  // namespace
}  // namespace moe
