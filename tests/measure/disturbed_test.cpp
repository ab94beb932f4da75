#include <gtest/gtest.h>

#include "moe/measure/layers/layer_bench.h"

namespace moe {
namespace {

// Passes of two ranks, the second of which is the slower one.
MeasuredRun run_of(const std::vector<double>& totals_s, int64_t overruns = 0) {
  MeasuredRun run;
  for (const double total_s : totals_s) run.total_s.push_back({total_s / 2, total_s});
  run.overruns = overruns;
  run.paced_tasks = 200;
  return run;
}

TEST(Disturbed, IsARunOfManyOverrunsOrUnevenPasses) {
  EXPECT_FALSE(disturbed(run_of({1, 1, 1})));
  EXPECT_FALSE(disturbed(run_of({1, 1, 1}, 2)));
  EXPECT_TRUE(disturbed(run_of({1, 1, 1}, 3)));
  EXPECT_TRUE(disturbed(run_of({1.02, 1, 1.02})));
  EXPECT_FALSE(disturbed(run_of({1.009, 1, 1.3}))) << "one slow pass does not move the median";
}

TEST(Disturbed, IsNoRunWithoutPaces) {
  MeasuredRun run = run_of({1, 2, 3}, 200);
  run.paced_tasks = 0;
  EXPECT_FALSE(disturbed(run));
}

}  // namespace
}  // namespace moe
