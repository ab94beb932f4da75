#include <gtest/gtest.h>

#include "moe/record/pass_times.h"

namespace moe {
namespace {

TEST(OverRanks, EachIterationHasItsSlowestAndItsFastest) {
  EXPECT_EQ(max_over_ranks({{1, 2}, {4, 3}}), (std::vector<double>{2, 4}));
  EXPECT_EQ(min_over_ranks({{1, 2}, {4, 3}}), (std::vector<double>{1, 3}));
}

}  // namespace
}  // namespace moe
