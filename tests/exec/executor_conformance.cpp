// The executor on any device, by work that every device knows.
#include "tests/exec/executor_conformance.h"

#include <memory>

#include "moe/exec/executor.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

/// A task computes 1 + the sum of what those computed that it waits for: one that ran too early shows.
class Counting final : public Binding {
 public:
  Counting(Device& device, size_t tasks) : stream_(device.make_stream("setup")), tasks_(tasks) {
    std::vector<double> start(tasks + 1, 0.0);
    start.back() = 1;
    cells_ = std::make_unique<OnDevice<double>>(device, *stream_, start);
    stream_->synchronize();
  }

  void issue(const Task& task, Stream& stream, Pace) override {
    double* done = cells_->data();
    Sum sum{.from = {done + tasks_}, .to = {done + task.id}, .elements = 1, .dtype = DType::float64};
    for (const int before : task.after) sum.from.push_back(done + before);
    stream.move({.copies = {}, .sum = sum});
  }
  std::vector<double> done() {
    std::vector<double> cells = cells_->read(*stream_);
    cells.resize(tasks_);
    return cells;
  }

 private:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<OnDevice<double>> cells_;
  size_t tasks_ = 0;
};

TEST_P(ExecutorConformance, RandomPlansRunInOrder) {
  const auto device = GetParam().make();
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
