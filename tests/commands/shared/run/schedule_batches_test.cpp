#include <gtest/gtest.h>

#include "commands/shared/run/run_report.h"

namespace moe::commands {
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

TEST(ScheduleBatches, HaveTheRunsOfAllPlansInOrder) {
  std::vector<measure::LayerMeasurement> batches(3);
  batches[0].runs.resize(2);
  batches[2].runs.resize(1);
  double error = 0;
  for (measure::LayerMeasurement& batch : batches)
    for (measure::MeasuredRun& run : batch.runs) run.worst_error = ++error;
  const std::vector<BatchedRun> runs = runs_of(batches);
  ASSERT_EQ(runs.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(runs[i].run.worst_error, static_cast<double>(i + 1));
  EXPECT_EQ(&runs[0].all, &runs[1].all);
  EXPECT_EQ(&runs[2].all, &batches[2]);
}

}  // namespace
}  // namespace moe::commands
