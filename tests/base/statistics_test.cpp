#include "moe/base/statistics.h"

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

TEST(Statistics, TheUpperMedianIsOneOfTheNumbers) {
  EXPECT_EQ(upper_median({3, 1, 2}), 2);
  EXPECT_EQ(upper_median({4, 1, 2, 3}), 3);
}

TEST(Statistics, ANearestRankIsTheFirstThatEnoughOfThemReach) {
  EXPECT_EQ(nearest_rank({4, 1, 2, 3}, 0.5), 2);
  EXPECT_EQ(nearest_rank({4, 1, 2, 3}, 0.51), 3);
  EXPECT_EQ(nearest_rank({4, 1, 2, 3}, 0), 1);
  EXPECT_EQ(nearest_rank({4, 1, 2, 3}, 1), 4);
}

TEST(Statistics, NoSamplesIsAnError) {
  EXPECT_THROW(median({}), WrongResult);
  EXPECT_THROW(upper_median({}), WrongResult);
  EXPECT_THROW(quantile({}, 0.5), WrongResult);
  EXPECT_THROW(nearest_rank({}, 0.5), WrongResult);
}

}  // namespace
}  // namespace moe
