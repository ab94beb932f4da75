// The conformance suite on a GPU, and what only that promises: how precisely it holds, and its memory pool.
#include <algorithm>
#include <cstdio>

#include "moe/base/check.h"
#include "moe/device/device.h"
#include "moe/device/gpu_settings.h"
#include "tests/device/device_conformance.h"

namespace moe {
namespace {

std::unique_ptr<Device> make_gpu() { return make_device(DeviceKind::cuda); }

// A reference moment that is off by more than this was taken while the thread was interrupted eight times.
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance, testing::Values(DeviceFactory{"cuda", make_gpu, 50e-6}),
                         DeviceConformance::name);

TEST(GpuHoldTest, EndsWithin20MicrosecondsOfItsDeadline) {
  const auto device = make_gpu();
  const auto lane = device->make_stream("lane");
  const auto since = device->make_event(), after = device->make_event();
  std::vector<double> late;
  for (int i = 0; i < 300; ++i) {
    const double pace = 50e-6 * (1 + i % 40);
    lane->mark(*since);
    lane->hold(*since, {.at_least_s = pace});
    lane->record(*after);
    lane->synchronize();
    late.push_back(after->seconds() - since->seconds() - pace);
  }
  std::sort(late.begin(), late.end());
  std::printf("hold(): late by %.2f us at least, %.2f us in the median, %.2f us at worst\n", late.front() * 1e6,
              late[150] * 1e6, late.back() * 1e6);
  EXPECT_GE(late.front(), 0);
  EXPECT_LT(late[285], 20e-6);
}

// Each takes the time of one: a hold keeps no other stream from running.
TEST(GpuHoldTest, StreamsHoldSideBySide) {
  constexpr double kPaceS = 0.05;
  constexpr size_t kLanes = 16;
  const auto device = make_gpu();
  std::vector<std::unique_ptr<Stream>> lanes;
  std::vector<std::unique_ptr<Event>> begun, ended;
  for (size_t i = 0; i < kLanes; ++i) {
    lanes.push_back(device->make_stream("lane"));
    begun.push_back(device->make_event());
    ended.push_back(device->make_event());
  }
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i]->mark(*begun[i]);
    lanes[i]->hold(*begun[i], {.at_least_s = kPaceS});
    lanes[i]->record(*ended[i]);
  }
  double first = now_s() + 3600, last = 0;
  for (const auto& lane : lanes) lane->synchronize();
  for (size_t i = 0; i < kLanes; ++i) {
    first = std::min(first, begun[i]->seconds());
    last = std::max(last, ended[i]->seconds());
  }
  EXPECT_LT(last - first, 2 * kPaceS);
}

TEST(GpuEventTest, MomentsOfTwoDevicesAgreeWithTheHostsClock) {
  const auto one = make_gpu(), two = make_gpu();
  for (Device* device : {one.get(), two.get()}) {
    const auto lane = device->make_stream("lane");
    const auto reached = device->make_event();
    std::vector<double> off;
    for (int i = 0; i < 50; ++i) {
      const double before = now_s();
      lane->record(*reached);
      lane->synchronize();
      off.push_back(std::max(before - reached->seconds(), reached->seconds() - now_s()));
    }
    std::sort(off.begin(), off.end());
    EXPECT_LT(off[25], 5e-6) << "outside of the time in which it was recorded";
  }
}

TEST(GpuStreamTest, AFailedLaunchFailsTheStreamAndNamesCudasReason) {
  const auto device = make_gpu();
  const auto lane = device->make_stream("lane");
  std::byte host{};
  lane->copy({.to = nullptr, .from = &host, .bytes = 1});
  std::string reason = "none";
  try {
    lane->synchronize();
  } catch (const RankFailure& error) {
    reason = error.what();
  }
  EXPECT_NE(reason.find("cudaMemcpyAsync"), std::string::npos) << reason;
  const auto other = device->make_stream("other");
  EXPECT_NO_THROW(other->synchronize());
}

TEST(GpuMemoryTest, RefusesMoreThanThereIsAndWorksOn) {
  const auto device = make_gpu();
  EXPECT_THROW(device->make_memory(int64_t{1} << 42), OutOfMemory);
  const auto lane = device->make_stream("lane");
  const OnDevice<double> after(*device, *lane, {7});
  EXPECT_EQ(after.read(*lane), std::vector<double>{7});
}

TEST(GpuMemoryTest, ThePoolHandsOutWithoutAskingTheDriver) {
  const auto device = make_gpu();
  const int64_t bytes = 256 * kMiB;
  device->make_memory(bytes);
  std::vector<double> took;
  for (int i = 0; i < 50; ++i) {
    const double begin = now_s();
    const Memory memory = device->make_memory(bytes);
    took.push_back(now_s() - begin);
  }
  std::sort(took.begin(), took.end());
  std::printf("256 MiB from the pool: %.1f us in the median\n", took[25] * 1e6);
  EXPECT_LT(took[25], 1e-3);
}

TEST(GpuSettingsTest, TellGpusApartWithoutTheirNumbers) {
  EXPECT_FALSE(gpu_setting(0, "gpu").empty());
  EXPECT_EQ(gpu_setting(0, "gpu_uuid").size(), 16U);
  EXPECT_EQ(gpu_setting(0, "gpu_uuid"), gpu_setting(gpu_count(), "gpu_uuid"));
  for (int gpu = 1; gpu < gpu_count(); ++gpu) EXPECT_NE(gpu_setting(0, "gpu_uuid"), gpu_setting(gpu, "gpu_uuid"));
  EXPECT_NE(gpu_setting(0, "cuda_driver").find('.'), std::string::npos);
  EXPECT_EQ(gpu_setting(0, "nothing"), "");
  EXPECT_GT(free_gpu_bytes(0), 0);
}

TEST(GpuDeviceTest, RanksTakeTurnsOnTheGpusThatThereAre) {
  EXPECT_NE(make_device(DeviceKind::cuda, gpu_count()), nullptr);
  EXPECT_THROW(make_device(DeviceKind::cuda, -1), BadInput);
}

}  // namespace
}  // namespace moe
