// The executor on a GPU's streams.
#include <algorithm>
#include <cstdio>

#include "moe/exec/executor.h"
#include "moe/exec/overhead.h"
#include "tests/exec/executor_conformance.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

INSTANTIATE_TEST_SUITE_P(Gpu, ExecutorConformance,
                         testing::Values(DeviceFactory{"cuda", [] { return make_device(DeviceKind::cuda); }}),
                         ExecutorConformance::name);

class Empty final : public Binding {
 public:
  void issue(const Task&, Stream&, Pace) override {}
};

TEST(ExecutorGpuTest, PacedTasksAreLateByMicrosecondsAndOverrunNothing) {
  const auto device = make_device(DeviceKind::cuda);
  const auto structure = random_structure(5, 3, 200).build();
  Executor executor(*device, structure);
  Empty empty;
  const std::vector<double> paces(structure->tasks.size(), 1e-3);
  executor.run(empty, paces);
  const RunTimes& times = executor.run(empty, paces);
  std::vector<double> late;
  for (const TaskTime& task : times.tasks) late.push_back(task.end_s - task.start_s - 1e-3);
  std::sort(late.begin(), late.end());
  std::printf("paced tasks: late by %.1f us in the median, %.1f us at worst\n", late[100] * 1e6, late.back() * 1e6);
  EXPECT_LT(late[100], 20e-6);
  EXPECT_EQ(times.overruns, 0);
}

TEST(ExecutorGpuTest, AnEmptyTaskCostsLessThan10Microseconds) {
  for (const int ranks : {1, 4}) {
    const Overhead overhead = measure_overhead(ranks, kOverheadRuns, DeviceKind::cuda);
    std::printf("cuda, %d ranks: %.2f us per empty task, %.2f us from lane to lane\n", ranks, overhead.task_s * 1e6,
                overhead.crossing_s * 1e6);
    if (ranks > 1) continue;
    std::printf("cuda, 1 rank: %.2f us per task of an empty kernel, %.2f us replayed\n", overhead.kernel_task_s * 1e6,
                overhead.replayed_task_s * 1e6);
    EXPECT_LT(overhead.task_s, 10e-6);
    EXPECT_GT(overhead.replayed_task_s, 0);
    EXPECT_LT(overhead.replayed_task_s, 3e-6);
  }
}

}  // namespace
}  // namespace moe
