#include <gtest/gtest.h>

#include "tuner/sweep_report.h"

namespace moe::tuner {
namespace {

TEST(StrategyReport, StrategiesOfNoLayersAreNone) {
  const Profile profile = find_profile("testbed-b");
  Grid grid = find_grid("fsmoe-b");
  grid.layers.resize(4);
  const commands::SweepRequest request{profile, grid, {&find_schedule("tutel"), &find_schedule("fsmoe")}, {}, {}};
  const std::vector<commands::SweepRow> rows = commands::sweep(request);
  EXPECT_TRUE(compare_strategies(request, rows, 0).empty());
  EXPECT_EQ(compare_strategies(request, rows, 2).size(), layer_strategies().size());
}

}  // namespace
}  // namespace moe::tuner
