#include "moe/base/statistics.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

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

// Of every number of samples: the chance that a fair coin shows fewer than j heads, counted over all outcomes.
TEST(MedianInterval, IsTheNarrowestThatCoversTheMedian) {
  const auto outside = [](int n, int j) {
    int64_t outcomes = 0;
    for (uint32_t coins = 0; coins < 1U << n; ++coins) outcomes += std::popcount(coins) < j;
    return std::ldexp(static_cast<double>(outcomes), -n);
  };
  for (int n = 1; n <= 18; ++n) {
    std::vector<double> values;
    for (int i = 0; i < n; ++i) values.push_back(i * 7 % n + 1);  // 1..n, in some order
    if (n % 7 == 0) std::iota(values.begin(), values.end(), 1);
    const auto found = median_interval(values);
    ASSERT_EQ(found.has_value(), n >= 6) << n;
    if (!found) continue;
    const int j = static_cast<int>(found->low);
    EXPECT_EQ(found->high, n + 1 - j);
    EXPECT_LE(2 * outside(n, j), 0.05) << n;
    EXPECT_GT(2 * outside(n, j + 1), 0.05) << n;
  }
}

// As tables of the sign test print it.
TEST(MedianInterval, IsAsPrinted) {
  const auto ranks = [](int n) {
    std::vector<double> values(n);
    std::iota(values.begin(), values.end(), 1);
    const Interval found = median_interval(values).value();
    return std::pair{found.low, found.high};
  };
  EXPECT_EQ(ranks(6), (std::pair{1.0, 6.0}));
  EXPECT_EQ(ranks(10), (std::pair{2.0, 9.0}));
  EXPECT_EQ(ranks(20), (std::pair{6.0, 15.0}));
  EXPECT_EQ(ranks(100), (std::pair{40.0, 61.0}));
  const auto [low, high] = ranks(10000);  // n / 2 -+ 1.96 sqrt(n) / 2
  EXPECT_NEAR(low, 4902, 1.5);
  EXPECT_EQ(high, 10001 - low);
  EXPECT_THROW(median_interval({}), WrongResult);
}

}  // namespace
}  // namespace moe
