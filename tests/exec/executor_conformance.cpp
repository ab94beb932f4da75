// The executor on any device, by work that every device knows.
#include "tests/exec/executor_conformance.h"

#include <memory>

#include "moe/exec/executor.h"
#include "tests/exec/counting.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

TEST_P(ExecutorConformance, RandomPlansRunInOrder) {
  const auto device = GetParam().make();
  for (const uint64_t seed : {1, 2, 3}) {
    const auto structure = random_structure(seed, 4, 300).build();
    Executor executor(*device, structure);
    for (int round = 0; round < 5; ++round) {
      Counting counting(*device, structure->tasks.size());
      const RunTimes& times = executor.run(counting);
      for (const Task& task : structure->tasks) {
        const TaskTime& time = times.tasks[task.id];
        EXPECT_GE(time.end_s, time.start_s);
        EXPECT_LE(time.end_s, times.pass.end_s);
        for (const int before : task.after) EXPECT_LE(times.tasks[before].end_s, time.start_s + 1e-6);
      }
      EXPECT_EQ(counting.done(), Counting::expected(*structure));
    }
  }
}

TEST_P(ExecutorConformance, PacedTasksTakeTheirTime) {
  const auto device = GetParam().make();
  const auto structure = random_structure(5, 3, 60).build();
  Executor executor(*device, structure);
  Counting counting(*device, structure->tasks.size());
  std::vector<double> paces;
  for (size_t i = 0; i < structure->tasks.size(); ++i) paces.push_back(2e-4 + 1e-5 * static_cast<double>(i % 7));
  executor.run(counting, paces);
  const RunTimes& times = executor.run(counting, paces);
  for (size_t i = 0; i < paces.size(); ++i) EXPECT_GE(times.tasks[i].end_s - times.tasks[i].start_s, paces[i] - 1e-9);
}

}  // namespace
}  // namespace moe
