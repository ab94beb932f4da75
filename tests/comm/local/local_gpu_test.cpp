// Ranks that are threads and share one GPU.
#include <algorithm>
#include <array>
#include <cstdio>

#include "moe/comm/local/local_world.h"
#include "moe/device/device.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

// Each rank's device takes its own reference moment.
constexpr double kClockErrorS = 50e-6;

void run_on_one_gpu(int ranks, double timeout_s, const std::function<void(Communicator&, Device&)>& body) {
  LocalWorld world(ranks, timeout_s);
  world.run([&](int rank) {
    const auto device = make_device(DeviceKind::cuda);
    body(*world.communicator(rank), *device);
  });
}

INSTANTIATE_TEST_SUITE_P(OneGpu, CommunicatorConformance,
                         testing::Combine(testing::Values(CommunicatorFactory{"cuda", run_on_one_gpu, kClockErrorS}),
                                          testing::Values(1, 2, 3, 4, 8)),
                         CommunicatorConformance::name);

/// 4 ranks sum one large and three small numbers whose sum a 16-bit type can hold but not reach by itself.
void check_narrow_sum(DType dtype, uint16_t large, uint16_t one, uint16_t expected) {
  constexpr size_t kElements = 1003;
  run_on_one_gpu(4, 60, [&](Communicator& world, Device& device) {
    const auto lane = device.make_stream("lane");
    const std::vector<uint16_t> values(kElements, world.rank() == 0 ? large : one);
    const OnDevice<uint16_t> data(device, *lane, values);
    world.allreduce(data.data(), kElements, dtype, {*lane});
    EXPECT_EQ(data.read(*lane), std::vector<uint16_t>(kElements, expected)) << name_of(dtype);
  });
}

TEST(LocalGpuTest, NarrowTypesAreAddedInFloat32AndRoundedOnce) {
  check_narrow_sum(DType::bfloat16, 0x4380, 0x3F80, 0x4382);  // 256 + 1 + 1 + 1 = 259, to even: 260
  check_narrow_sum(DType::float16, 0x6800, 0x3C00, 0x6802);   // 2048 + 1 + 1 + 1 = 2051, to even: 2052
}

struct PacedEnds {
  std::array<double, 4> begin{}, end{};
  std::array<int64_t, 4> overruns{};
};

/// An allreduce on 4 ranks, rank r coming r x 5 ms late.
PacedEnds paced_allreduce(int64_t elements, double pace_s) {
  PacedEnds ends;
  run_on_one_gpu(4, 60, [&](Communicator& world, Device& device) {
    const auto rank = static_cast<size_t>(world.rank());
    const auto lane = device.make_stream("lane");
    const auto begin = device.make_event(), end = device.make_event();
    const OnDevice<float> data(device, *lane, std::vector<float>(static_cast<size_t>(elements), 1.0f));
    std::atomic<int64_t> overruns{0};
    lane->mark(*begin);
    lane->hold(*begin, {.at_least_s = 5e-3 * world.rank()});
    lane->record(*begin);
    world.allreduce(data.data(), elements, DType::float32, {*lane, {pace_s, &overruns}});
    lane->record(*end);
    EXPECT_EQ(data.read(*lane), std::vector<float>(data.size(), 4.0f));
    ends.begin[rank] = begin->seconds();
    ends.end[rank] = end->seconds();
    ends.overruns[rank] = overruns;
  });
  return ends;
}

TEST(LocalGpuTest, APacedOperationEndsOnAllRanksWhenItsPaceSaysAfterTheLastArrival) {
  constexpr double kPaceS = 0.03;
  const PacedEnds ends = paced_allreduce(1 << 16, kPaceS);
  const double last = *std::max_element(ends.begin.begin(), ends.begin.end());
  const double late = *std::max_element(ends.end.begin(), ends.end.end()) - last - kPaceS;
  std::printf("paced allreduce of 4 ranks: late by %.1f us\n", late * 1e6);
  for (const double end : ends.end) EXPECT_GE(end, last + kPaceS - kClockErrorS);
  EXPECT_LT(late, 1e-3);
  EXPECT_EQ(ends.overruns, (std::array<int64_t, 4>{}));
}

TEST(LocalGpuTest, CountsAnOverrunOnEachRankWhoseOwnWorkWasLate) {
  EXPECT_EQ(paced_allreduce(1 << 20, 1e-9).overruns, (std::array<int64_t, 4>{1, 1, 1, 1}));
}

}  // namespace
}  // namespace moe
