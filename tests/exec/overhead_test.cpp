// Prints what an empty task and a hand-over between lanes cost here.
#include "moe/exec/overhead.h"

#include <cstdio>
#include <gtest/gtest.h>

#include "moe/base/check.h"

namespace moe {
namespace {

TEST(OverheadTest, IsPositiveAndPrinted) {
  for (const int ranks : {1, 4}) {
    const Overhead overhead = measure_overhead(ranks, kOverheadRuns, DeviceKind::cpu);
    std::printf("%d ranks: %.2f us per empty task, %.2f us from lane to lane\n", ranks, overhead.task_s * 1e6,
                overhead.crossing_s * 1e6);
    EXPECT_GT(overhead.task_s, 0);
    EXPECT_GT(overhead.crossing_s, 0);
  }
}

TEST(OverheadTest, RefusesNoRanks) { EXPECT_THROW(measure_overhead(0, kOverheadRuns, DeviceKind::cpu), BadInput); }

}  // namespace
}  // namespace moe
