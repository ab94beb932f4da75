// What can't be recorded, where there is no GPU.
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/device/recorded_work.h"
#include "tests/base/error_of.h"
#include "tests/device/at_once_device.h"
#include "tests/exec/counting.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

class Waiting final : public Counting {
 public:
  using Counting::Counting;
  bool can_issue_ahead() const override { return false; }
};

class Unknown final : public Binding {
 public:
  void issue(const Task&, Stream&, Pace) override {}
  bool can_issue_ahead() const override { return true; }
};

TEST(ReplayTest, TheCpuRecordsNothingAndRunsOn) {
  const auto device = make_cpu_device();
  const auto structure = random_structure(1, 3, 20).build();
  Executor executor(*device, structure);
  Counting counting(*device, structure->tasks.size());
  EXPECT_EQ(error_of<Unsupported>([&] { executor.record(counting); }),
            "recorded passes: found the CPU, expected a GPU, whose streams have graphs");
  EXPECT_EQ(error_of<BadInput>([&] { executor.replay(counting); }), "a replay of a pass: found none that was recorded");
  executor.run(counting);
  EXPECT_EQ(counting.done(), Counting::expected(*structure));
}

TEST(ReplayTest, BindingsSayWhatTheyCant) {
  const auto device = make_at_once_device();
  const auto structure = random_structure(1, 3, 20).build();
  Executor executor(*device, structure);
  Waiting waiting(*device, structure->tasks.size());
  EXPECT_EQ(error_of<Unsupported>([&] { executor.record(waiting); }),
            "a pass in which the host waits cannot be recorded as a CUDA graph");
  Unknown unknown;
  EXPECT_EQ(error_of<Unsupported>([&] { executor.record(unknown); }),
            "this binding cannot record its tasks as a CUDA graph");
}

TEST(ReplayTest, StreamsOfTheCpuAreRefused) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("lane");
  Stream* lanes[] = {stream.get()};
  EXPECT_THROW(record_work(lanes, {}, [] { FAIL() << "issued"; }), Unsupported);
  EXPECT_THROW(record_work({}, {}, [] {}), BadInput);
  EXPECT_THROW(launch_nothing(*stream), Unsupported);
}

}  // namespace
}  // namespace moe
