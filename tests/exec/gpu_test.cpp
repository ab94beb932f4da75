// The executor on a GPU's streams.
#include <cstdio>
#include <gtest/gtest.h>

#include "moe/exec/executor.h"
#include "moe/exec/overhead.h"
#include "tests/device/on_device.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

/// Every task counts itself, and notes how far the count was before: the tasks it waits for are in it.
class Counting final : public Binding {
 public:
  Counting(Device& device, size_t tasks) : stream_(device.make_stream("setup")) {
    std::vector<double> start(tasks * 2, 0.0);
    for (size_t i = 0; i < tasks; ++i) start[tasks + i] = 1;
    cells_ = std::make_unique<OnDevice<double>>(device, *stream_, start);
    stream_->synchronize();
    tasks_ = tasks;
  }

  /// done(task) = 1 + the most done of what it waits for, by sums of what it waits for and a one.
  void issue(const Task& task, Stream& stream, Pace) override {
    double* done = cells_->data();
    Sum sum{.from = {done + tasks_ + task.id}, .to = {done + task.id}, .elements = 1, .dtype = DType::float64};
    for (const int before : task.after) sum.from.push_back(done + before);
    stream.move({.copies = {}, .sum = sum});
  }
  std::vector<double> done() { return cells_->read(*stream_); }

 private:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<OnDevice<double>> cells_;
  size_t tasks_ = 0;
};

TEST(ExecutorGpuTest, RandomPlansRunInOrder) {
  const auto device = make_device(DeviceKind::cuda);
  for (const uint64_t seed : {1, 2, 3}) {
    const auto structure = random_structure(seed, 4, 300).build();
    Executor executor(*device, structure);
    for (int round = 0; round < 5; ++round) {
      Counting counting(*device, structure->tasks.size());
      const RunTimes& times = executor.run(counting);
      std::vector<double> expected;
      for (const Task& task : structure->tasks) {
        double sum = 1;
        for (const int before : task.after) sum += expected[static_cast<size_t>(before)];
        expected.push_back(sum);
        const TaskTime& time = times.tasks[static_cast<size_t>(task.id)];
        EXPECT_GE(time.end_s, time.start_s);
        for (const int before : task.after)
          EXPECT_LE(times.tasks[static_cast<size_t>(before)].end_s, time.start_s + 1e-6);
      }
      EXPECT_EQ(counting.done(), expected);
    }
  }
}

TEST(ExecutorGpuTest, PacedTasksTakeTheirTime) {
  const auto device = make_device(DeviceKind::cuda);
  const auto structure = random_structure(5, 3, 60).build();
  Executor executor(*device, structure);
  Counting counting(*device, structure->tasks.size());
  std::vector<double> paces;
  for (size_t i = 0; i < structure->tasks.size(); ++i) paces.push_back(2e-4 + 1e-5 * static_cast<double>(i % 7));
  executor.run(counting, paces);
  const RunTimes& times = executor.run(counting, paces);
  double late = 0;
  for (size_t i = 0; i < paces.size(); ++i) {
    const double took = times.tasks[i].end_s - times.tasks[i].start_s;
    EXPECT_GE(took, paces[i]);
    late = std::max(late, took - paces[i]);
  }
  std::printf("paced tasks: at most %.1f us longer than their pace\n", late * 1e6);
  EXPECT_EQ(times.overruns, 0);
}

TEST(ExecutorGpuTest, AnEmptyTaskCostsLessThan10Microseconds) {
  for (const int ranks : {1, 4}) {
    const Overhead overhead = measure_overhead(ranks, 20, DeviceKind::cuda);
    std::printf("cuda, %d ranks: %.2f us per empty task, %.2f us from lane to lane\n", ranks, overhead.task_s * 1e6,
                overhead.crossing_s * 1e6);
    if (ranks == 1) {
      EXPECT_LT(overhead.task_s, 10e-6);
    }
  }
}

}  // namespace
}  // namespace moe
