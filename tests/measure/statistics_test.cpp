#include "moe/measure/statistics.h"

#include <gtest/gtest.h>

#include "moe/base/check.h"

namespace moe {
namespace {

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Statistics, QuantilesInterpolate) {
  EXPECT_EQ(quantile({0, 10}, 0.25), 2.5);
  EXPECT_EQ(quantile({5, 1, 9}, 0), 1);
  EXPECT_EQ(quantile({5, 1, 9}, 1), 9);
}

TEST(Statistics, NoSamplesIsAnError) { EXPECT_THROW(median({}), WrongResult); }

TEST(Statistics, TheSlowestRankCounts) { EXPECT_EQ(max_over_ranks({{1, 2}, {4, 3}}), (std::vector<double>{2, 4})); }

}  // namespace
}  // namespace moe
