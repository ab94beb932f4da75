#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "commands/regress/rule.h"
#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/base/statistics.h"

namespace moe::regress {
namespace {

// Every sign of every value, one after the other.
double brute_sign_flip_p(std::vector<double> values) {
  std::vector<double> sizes;
  for (const double value : values) sizes.push_back(std::abs(value));
  const double most = 1.25 * median(sizes);
  double sum = 0;
  for (double& value : values) value = std::clamp(value, -most, most), sum += value;
  int64_t reached = 0;
  const int64_t all = int64_t{1} << values.size();
  for (int64_t signs = 0; signs < all; ++signs) {
    double flipped = 0;
    for (size_t i = 0; i < values.size(); ++i) flipped += (signs >> i & 1) != 0 ? -values[i] : values[i];
    reached += flipped >= sum - 1e-12;
  }
  return static_cast<double>(reached) / static_cast<double>(all);
}

TEST(SignFlips, AreCountedAsOneByOne) {
  for (uint64_t draw = 0; draw < 400; ++draw) {
    std::vector<double> values;
    for (uint64_t i = 0; i < draw % 13 + 1; ++i) {
      values.push_back(random_normal(1, draw, i) + 0.5);
      if (draw % 3 == 0) values.back() = std::round(values.back());  // equal ones, and zeros
    }
    EXPECT_DOUBLE_EQ(sign_flip_p(values), brute_sign_flip_p(values)) << draw;
  }
}

TEST(SignFlips, OfManyAgreeAreRare) {
  const std::vector<double> all(30, 0.05);
  EXPECT_DOUBLE_EQ(sign_flip_p(all), std::exp2(-30));
  std::vector<double> spiked = all;
  spiked[3] = -0.6;  // one disturbed pair of thirty hides nothing
  EXPECT_LT(sign_flip_p(spiked), 1e-6);
  EXPECT_DOUBLE_EQ(sign_flip_p({}), 1);
  EXPECT_THROW(sign_flip_p(std::vector<double>(41, 1.0)), BadInput);
}

// Under the null hypothesis a p is at most x in a share x of the cases.
TEST(SignFlips, AreAsRareAsTheySay) {
  int below = 0;
  for (uint64_t draw = 0; draw < 4000; ++draw) {
    std::vector<double> values;
    for (uint64_t i = 0; i < 14; ++i) values.push_back(std::pow(random_normal(2, draw, i), 3));
    below += sign_flip_p(values) <= 0.05;
  }
  EXPECT_NEAR(below / 4000.0, 0.05, 0.012);
}

// The figures of the next three are SciPy's.
TEST(Tests, AreThoseOfAStatisticsLibrary) {
  const std::vector<double> a{1, 2, 2, 3.5, 5}, b{1.5, 2, 4, 6, 7, 7};
  EXPECT_NEAR(welch_p(a, b), 0.15997459182217422, 1e-9);
  EXPECT_NEAR(rank_sum_p(a, b), 0.1960821150251133, 1e-9);
  EXPECT_NEAR(fisher_p(5, 18, 0, 18), 0.022727272727272728, 1e-9);
  EXPECT_NEAR(fisher_p(3, 12, 1, 12), 0.2950310559006211, 1e-9);
  EXPECT_DOUBLE_EQ(fisher_p(0, 12, 3, 12), 1);
  EXPECT_DOUBLE_EQ(welch_p({a.begin(), a.begin() + 1}, b), 1);
  EXPECT_DOUBLE_EQ(rank_sum_p(std::vector<double>(3, 1.0), std::vector<double>(4, 1.0)), 1);
}

TEST(ShareInterval, IsCloppersAndPearsons) {
  const Interval none = share_interval(0, 30, 0.95), few = share_interval(3, 100, 0.95);
  EXPECT_DOUBLE_EQ(none.min, 0);
  EXPECT_NEAR(none.max, 0.11570330822202743, 1e-9);
  EXPECT_NEAR(few.min, 0.006229971538306227, 1e-9);
  EXPECT_NEAR(few.max, 0.08517605297428028, 1e-9);
  EXPECT_DOUBLE_EQ(share_interval(5, 5, 0.95).max, 1);
}

TEST(TrimmedMean, SetsAFifthAsideAtEitherEnd) {
  const TrimmedMean mean = trimmed_mean({0.1, -0.2, 0.3, 0.05, 0.5, -0.9, 0.2, 0.15, 0.22, 0.4});
  EXPECT_NEAR(mean.mean, 0.17, 1e-12);
  EXPECT_NEAR(mean.interval(0.95).min, 0.02537348026995226, 1e-9);
  EXPECT_NEAR(mean.interval(0.95).max, 0.31462651973004774, 1e-9);
  EXPECT_TRUE(std::isinf(trimmed_mean({1}).interval(0.95).max));
  EXPECT_EQ(trimmed_mean({}).kept, 0);
}

TEST(TrimmedMean, ItsIntervalHoldsTheMiddle) {
  int held = 0;
  for (uint64_t draw = 0; draw < 2000; ++draw) {
    std::vector<double> values;
    for (uint64_t i = 0; i < 12; ++i) values.push_back(random_normal(3, draw, i));
    const Interval interval = trimmed_mean(values).interval(0.95);
    held += interval.min <= 0 && interval.max >= 0;
  }
  EXPECT_NEAR(held / 2000.0, 0.95, 0.02);
}

TEST(Holm, StopsAtTheFirstThatIsKept) {
  EXPECT_EQ(holm_rejections(std::vector{0.002, 0.04, 0.001, 0.5}, 0.01), (std::vector{true, false, true, false}));
  EXPECT_EQ(holm_rejections(std::vector{0.004, 0.004, 0.004}, 0.01), (std::vector{false, false, false}));
  EXPECT_EQ(holm_rejections(std::vector{0.01}, 0.01), std::vector{true});
  EXPECT_TRUE(holm_rejections({}, 0.01).empty());
}

}  // namespace
}  // namespace moe::regress
