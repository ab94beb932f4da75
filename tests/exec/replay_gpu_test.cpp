// Passes recorded as CUDA graphs: order, times, paces, and what is left after a recording failed.
#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <stdexcept>

#include "moe/base/check.h"
#include "moe/device/device.h"
#include "tests/exec/counting.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

double us(double seconds) { return seconds * 1e6; }

TEST(ReplayGpuTest, TasksRunInOrderEveryTime) {
  const auto device = make_device(DeviceKind::cuda);
  for (const uint64_t seed : {1, 2, 3}) {
    const auto structure = random_structure(seed, 4, 300).build();
    Executor executor(*device, structure);
    Counting counting(*device, structure->tasks.size());
    const std::vector<double> expected = Counting::expected(*structure);
    executor.record(counting);
    counting.clear();
    EXPECT_EQ(counting.done(), std::vector<double>(expected.size(), 0.0));
    for (int round = 0; round < 5; ++round) {
      counting.clear();
      const double issued = executor.run(counting).pass.end_s;
      EXPECT_EQ(counting.done(), expected) << "issued, round " << round;
      counting.clear();
      const RunTimes& times = executor.replay(counting);
      EXPECT_EQ(counting.done(), expected) << "replayed, round " << round;
      EXPECT_GT(times.pass.end_s, times.pass.start_s);
      EXPECT_EQ(times.tasks.front().end_s, 0);
      std::printf("300 tasks on 4 lanes: issued %.1f us, replayed %.1f us (on the GPU %.1f us)\n", us(issued),
                  us(times.pass.end_s), us(times.pass.end_s - times.pass.start_s));
    }
  }
}

TEST(ReplayGpuTest, TasksHaveTimesWhereTheyAreAskedFor) {
  const auto device = make_device(DeviceKind::cuda);
  const auto structure = random_structure(4, 4, 100).build();
  Executor executor(*device, structure);
  Counting counting(*device, structure->tasks.size());
  executor.record(counting, {}, Timed::tasks);
  for (int round = 0; round < 3; ++round) {
    counting.clear();
    const RunTimes& times = executor.replay(counting);
    EXPECT_EQ(counting.done(), Counting::expected(*structure));
    for (const Task& task : structure->tasks) {
      const TaskTime& time = times.tasks[task.id];
      EXPECT_GT(time.start_s, -50e-6) << task.id;  // the clocks' error
      EXPECT_LT(time.end_s, now_s() - times.begin_s + 50e-6) << task.id;
      EXPECT_GE(time.end_s, time.start_s) << task.id;
      for (const int before : task.after)
        EXPECT_LE(times.tasks[before].end_s, time.start_s + 1e-6) << before << " -> " << task.id;
    }
    std::printf("100 timed tasks: replayed %.1f us\n", us(times.pass.end_s));
  }
}

TEST(ReplayGpuTest, PacedTasksTakeTheirTimeAndCountOverruns) {
  const auto device = make_device(DeviceKind::cuda);
  const auto structure = random_structure(5, 3, 60).build();
  Executor executor(*device, structure);
  Counting counting(*device, structure->tasks.size());
  std::vector<double> paces;
  for (size_t i = 0; i < structure->tasks.size(); ++i) paces.push_back(2e-4 + 1e-5 * static_cast<double>(i % 7));
  executor.record(counting, paces, Timed::tasks);
  for (int round = 0; round < 3; ++round) {
    const RunTimes& times = executor.replay(counting);
    double late = 0;
    for (size_t i = 0; i < paces.size(); ++i) {
      const double took = times.tasks[i].end_s - times.tasks[i].start_s;
      EXPECT_GE(took, paces[i] - 1e-9) << i;
      late = std::max(late, took - paces[i]);
    }
    EXPECT_EQ(times.overruns, 0);
    std::printf("paced replay: %.1f us, late by %.1f us at worst\n", us(times.pass.end_s), us(late));
  }
  executor.record(counting, std::vector<double>(paces.size(), 2e-9));
  for (int round = 0; round < 2; ++round) {
    const int64_t replayed = executor.replay(counting).overruns;
    const int64_t issued = executor.run(counting, std::vector<double>(paces.size(), 2e-9)).overruns;
    std::printf("overruns of %zu hasty tasks: issued %lld, replayed %lld\n", paces.size(),
                static_cast<long long>(issued), static_cast<long long>(replayed));
    EXPECT_GT(replayed, 0);
    EXPECT_LE(replayed, static_cast<int64_t>(paces.size()));
    EXPECT_GT(issued, 0);
    EXPECT_LE(issued, static_cast<int64_t>(paces.size()));
  }
}

/// Fails at one task of its second pass, which is the recorded one.
class FailingLate final : public Counting {
 public:
  enum class Where { issue, work, host, outside, cuda };
  FailingLate(Device& device, size_t tasks, Where where)
      : Counting(device, tasks), where_(where), outside_(device.make_event()), other_(device.make_stream("other")) {
    other_->record(*outside_);
  }
  void issue(const Task& task, Stream& stream, Pace pace) override {
    passes_ += task.id == 0;
    if (passes_ == 2 && task.id == 40) {
      if (where_ == Where::issue) throw std::logic_error("issue");
      if (where_ == Where::host) stream.synchronize();
      if (where_ == Where::outside) stream.wait(*outside_);
      if (where_ == Where::cuda) stream.copy({.to = nullptr, .from = &host_, .bytes = 1});
      if (where_ == Where::work) stream.launch([](void*) { throw std::logic_error("work"); });
    }
    Counting::issue(task, stream, pace);
  }

 private:
  const Where where_;
  std::unique_ptr<Event> outside_;
  std::unique_ptr<Stream> other_;
  std::byte host_{};
  int passes_ = 0;
};

TEST(ReplayGpuTest, AFailedRecordingLeavesTheExecutorUsable) {
  const auto device = make_device(DeviceKind::cuda);
  const auto structure = random_structure(6, 4, 60).build();
  Executor executor(*device, structure);
  using enum FailingLate::Where;
  for (const auto where : {issue, work, host, outside, cuda}) {
    FailingLate failing(*device, structure->tasks.size(), where);
    std::string why = "none";
    try {
      executor.record(failing);
    } catch (const std::exception& error) {
      why = error.what();
    }
    std::printf("a failed recording: %s\n", why.c_str());
    if (where != cuda) {  // CUDA may refuse its call when it is recorded, or when it is replayed
      const std::string expected = where == issue  ? "issue"
                                   : where == work ? "work"
                                   : where == host ? "a pass in which the host waits cannot be recorded as a CUDA graph"
                                                   : "recorded passes: found a wait for work from outside";
      EXPECT_EQ(why.substr(0, expected.size()), expected);
      EXPECT_THROW(executor.replay(failing), BadInput);
    }
    for (int round = 0; round < 2; ++round) {
      failing.clear();
      executor.run(failing);
      EXPECT_EQ(failing.done(), Counting::expected(*structure));
    }
    executor.record(failing);
    failing.clear();
    executor.replay(failing);
    EXPECT_EQ(failing.done(), Counting::expected(*structure));
  }
}

}  // namespace
}  // namespace moe
