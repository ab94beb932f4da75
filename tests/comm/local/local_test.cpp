// Ranks as threads: the conformance suite, and what only they promise (exceptions across threads, pacing).
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include "moe/base/check.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/pacer.h"
#include "tests/base/error_of.h"
#include "tests/comm/communicator_conformance.h"
#include "tests/device/at_once_device.h"

namespace moe {
namespace {

using MakeDevice = std::unique_ptr<Device> (*)();

CommunicatorFactory local_on(const std::string& name, MakeDevice make) {
  return {.name = name, .run = [make](int ranks, double timeout_s, const auto& body) {
            LocalWorld world(ranks, timeout_s);
            world.run([&](int rank) {
              const auto device = make();
              body(*world.communicator(rank), *device);
            });
          }};
}

INSTANTIATE_TEST_SUITE_P(Local, CommunicatorConformance,
                         testing::Combine(testing::Values(local_on("cpu", make_cpu_device),
                                                          local_on("at_once", make_at_once_device)),
                                          testing::Values(1, 2, 3, 4, 8)),
                         CommunicatorConformance::name);

void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(LocalWorldTest, ARankThatDiesNamesItselfInTheOthersErrorsAndItsExceptionIsRethrown) {
  LocalWorld world(4);
  std::array<std::string, 4> failures;
  const std::string rethrown = error_of<std::logic_error>([&] {
    world.run([&](int rank) {
      const auto device = make_cpu_device();
      const auto lane = device->make_stream("lane");
      const auto comm = world.communicator(rank);
      if (rank == 2) throw std::logic_error("no memory for experts");
      comm->barrier({.stream = *lane, .task = "backward gather"});
      failures[rank] = failure_of(*lane);
      lane->synchronize();
    });
  });
  EXPECT_EQ(rethrown, "no memory for experts");
  for (const size_t rank : {0, 1, 3})
    EXPECT_EQ(failures[rank],
              fmt::format("rank {} in 'backward gather' (barrier): rank 2 died: no memory for experts", rank));
}

TEST(LocalWorldTest, AbortAloneIsRethrownAsRankFailure) {
  LocalWorld world(3);
  const std::string rethrown = error_of<RankFailure>([&] {
    world.run([&](int rank) {
      if (rank == 1) return world.communicator(rank)->abort("told to");
      world.communicator(rank)->split(0, 0);
    });
  });
  EXPECT_NE(rethrown.find("rank 1 aborted: told to"), std::string::npos) << rethrown;
}

TEST(LocalWorldTest, ASkippedOperationEndsTheOthersAtOnce) {
  LocalWorld world(3, 600);
  std::string waiting = "none";
  const std::string rethrown = error_of<std::logic_error>([&] {
    world.run([&](int rank) {
      const auto device = make_cpu_device();
      const auto lane = device->make_stream("lane");
      const auto comm = world.communicator(rank);
      if (rank == 1) lane->launch([](void*) { throw std::logic_error("broken expert"); });
      comm->barrier({.stream = *lane, .task = "combine"});
      if (rank == 0) waiting = failure_of(*lane);
      lane->synchronize();
    });
  });
  EXPECT_EQ(rethrown, "broken expert");
  EXPECT_NE(waiting.find("rank 1 skipped 'combine' (barrier)"), std::string::npos) << waiting;
}

TEST(LocalWorldTest, RunsAgainAfterwards) {
  LocalWorld world(4);
  std::atomic<int> runs{0};
  for (int round = 0; round < 20; ++round)
    world.run([&](int rank) {
      const auto device = make_cpu_device();
      const auto lane = device->make_stream("lane");
      world.communicator(rank)->barrier({*lane});
      lane->synchronize();
      ++runs;
    });
  EXPECT_EQ(runs, 80);
}

TEST(LocalWorldTest, TwoStreamsOnOneCommunicatorAreFoundOut) {
  LocalWorld world(2, 600);
  const std::string rethrown = error_of<RankFailure>([&] {
    world.run([&](int rank) {
      const auto device = make_cpu_device();
      const auto one = device->make_stream("one"), two = device->make_stream("two");
      const auto comm = world.communicator(rank);
      if (rank == 1) {
        nap(0.1);
        throw RankFailure("rank 1 leaves");
      }
      comm->barrier({.stream = *one, .task = "first"});
      nap(0.02);
      comm->barrier({.stream = *two, .task = "second"});
      two->synchronize();
    });
  });
  EXPECT_NE(rethrown.find("rank 0 came to 'second' (barrier)"), std::string::npos) << rethrown;
}

TEST(LocalWorldTest, RefusesWhatItLacks) {
  EXPECT_THROW(LocalWorld(0), BadInput);
  LocalWorld world(2);
  EXPECT_THROW(world.communicator(2), BadInput);
  EXPECT_THROW(world.communicator(-1), BadInput);
}

struct PacedEnds {
  std::array<double, 4> begin{}, end{};
  std::array<int64_t, 4> overruns{};
};

class LocalPaceTest : public testing::TestWithParam<MakeDevice> {};

INSTANTIATE_TEST_SUITE_P(Local, LocalPaceTest, testing::Values(make_cpu_device, make_at_once_device));

/// An allreduce on 4 ranks, rank r coming r x 10 ms late and paced by pace(r).
PacedEnds paced_allreduce(MakeDevice make, int64_t elements, const std::function<double(int)>& pace) {
  PacedEnds ends;
  LocalWorld world(4);
  world.run([&](int rank) {
    const auto device = make();
    const auto lane = device->make_stream("lane");
    const auto begin = device->make_event(), end = device->make_event();
    std::vector<float> data(elements, 1.0f);
    std::atomic<int64_t> overruns{0};
    lane->mark(*begin);
    lane->hold(*begin, {.at_least_s = 0.01 * rank});
    lane->record(*begin);
    world.communicator(rank)->allreduce(data.data(), elements, DType::float32, {*lane, {pace(rank), &overruns}});
    lane->record(*end);
    lane->synchronize();
    ends.begin[rank] = begin->seconds();
    ends.end[rank] = end->seconds();
    ends.overruns[rank] = overruns;
    EXPECT_EQ(data, std::vector<float>(data.size(), 4.0f));
  });
  return ends;
}

TEST_P(LocalPaceTest, EndsOnAllRanksNoEarlierThanTheLastArrivalPlusItsPace) {
  const PacedEnds ends = paced_allreduce(GetParam(), 100, [](int) { return 0.2; });
  const double last = *std::max_element(ends.begin.begin(), ends.begin.end());
  for (const double end : ends.end) EXPECT_GE(end, last + 0.2);
  for (const int64_t overruns : ends.overruns) EXPECT_EQ(overruns, 0);
}

TEST_P(LocalPaceTest, TheLongestOfUnequalPacesCounts) {
  const PacedEnds ends = paced_allreduce(GetParam(), 1, [](int rank) { return rank == 1 ? 0.03 : 0.001; });
  const double last = *std::max_element(ends.begin.begin(), ends.begin.end());
  for (const double end : ends.end) EXPECT_GE(end, last + 0.03);
}

TEST_P(LocalPaceTest, CountsAnOverrunOnEachRankWhoseOwnWorkWasLate) {
  for (const int64_t overruns : paced_allreduce(GetParam(), 1 << 23, [](int) { return 1e-9; }).overruns)
    EXPECT_EQ(overruns, 1);
  for (const int64_t overruns : paced_allreduce(GetParam(), 1 << 10, [](int) { return 0.0; }).overruns)
    EXPECT_EQ(overruns, 0);
}

// The pass of time is the pacer's, at the slowest rank's rate, on a rank that is not slowed itself too.
TEST(LocalPacerTest, EndsWhenThatSays) {
  const auto slowdown = [](std::span<const int> running, int resource) {
    return resource == 0 && running[1] > 0 ? 3.0 : 1.0;
  };
  Pacer pacer(2, 2, slowdown);
  const auto other = pacer.start({{1, 1}}, 3600);
  LocalWorld world(2);
  world.run([&](int rank) {
    const auto device = make_cpu_device();
    const auto lane = device->make_stream("lane");
    std::atomic<int64_t> overruns{0};
    const Pace pace{.at_least_s = 0.05, .overruns = &overruns, .pacer = &pacer, .rank = rank};
    const double begin = now_s();
    const auto comm = world.communicator(rank);
    for (int i = 0; i < 2; ++i) comm->barrier({*lane, pace, "slowed"});
    lane->synchronize();
    EXPECT_GE(now_s() - begin, 2 * 0.15);
    EXPECT_EQ(overruns, 0);
  });
}

}  // namespace
}  // namespace moe
