// What tables print of how far samples differ.
#include <gtest/gtest.h>

#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"

namespace moe {
namespace {

TEST(Spread, HasTheIntervalOfItsMedianWhereOneIsKnown) {
  const std::vector<double> ten{1.0, 0.9, 0.95, 1.1, 1.02, 1.0, 1.2, 0.98, 1.0, 1.05};  // least 0.9, most 1.2, median 1
  const auto within = median_interval(ten);
  ASSERT_TRUE(within);
  EXPECT_EQ(within->low, 0.95);  // the second least and the second most
  EXPECT_EQ(within->high, 1.1);
  EXPECT_EQ(spread_text(0.9, 1.2, 1, within), "30.0 % (10.0 %)");
  EXPECT_EQ(spread_text(0.9, 1.2, 2, {}), "15.0 %");
  EXPECT_EQ(spread_text(1, 1, 1, Interval{1, 1}), "0.0 % (0.0 %)");
  EXPECT_FALSE(median_interval({1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace moe
