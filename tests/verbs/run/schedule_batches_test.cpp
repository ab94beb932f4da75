#include "verbs/run/schedule_batches.h"

#include <gtest/gtest.h>

namespace moe {
namespace {

using Ends = std::vector<size_t>;

TEST(ScheduleBatches, HoldAsManyAsFit) {
  const std::vector<double> bytes{4, 4, 4, 9, 1, 1, 20, 2};
  EXPECT_EQ(batches_that_fit(bytes, 100), (Ends{8}));
  EXPECT_EQ(batches_that_fit(bytes, 10), (Ends{2, 3, 5, 6, 7, 8}));
  EXPECT_EQ(batches_that_fit(bytes, 12), (Ends{3, 6, 7, 8}));
  EXPECT_EQ(batches_that_fit(bytes, 0), (Ends{1, 2, 3, 4, 5, 6, 7, 8})) << "each alone, to fail by itself";
  EXPECT_EQ(batches_that_fit({}, 10), Ends());
}

}  // namespace
}  // namespace moe
