// Streams and events, by work that every device knows.
#include <numeric>
#include <thread>

#include "tests/device/device_conformance.h"

namespace moe {
namespace {

TEST_P(DeviceConformance, RunsWhatItIsGivenInOrder) {
  const auto lane = stream();
  const auto count = counter(*lane);
  const OnDevice<double> seen(*device_, 1000);
  for (size_t i = 0; i < seen.size(); ++i) {
    increment(*lane, count);
    lane->copy({seen.data() + i, count.data(), sizeof(double)});
  }
  std::vector<double> expected(seen.size());
  std::iota(expected.begin(), expected.end(), 1.0);
  EXPECT_EQ(seen.read(*lane), expected);
}

TEST_P(DeviceConformance, LaunchedWorkIsCalledOnceAndDestroyed) {
  const auto owned = std::make_shared<int>(0);
  const auto lane = stream();
  for (int i = 0; i < 100; ++i) lane->launch([owned](void*) { ++*owned; });
  lane->synchronize();
  EXPECT_EQ(*owned, 100);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_P(DeviceConformance, WaitOrdersStreams) {
  const auto ready = event();
  const auto producer = stream("producer"), consumer = stream("consumer");
  const auto count = counter(*producer);
  const OnDevice<double> seen(*device_, 500);
  for (size_t i = 0; i < seen.size(); ++i) {
    if (i % 100 == 0) work_for(*producer, 1e-3);
    increment(*producer, count);
    producer->record(*ready);
    consumer->wait(*ready);
    consumer->copy({seen.data() + i, count.data(), sizeof(double)});
    consumer->record(*ready);
    producer->wait(*ready);
  }
  std::vector<double> expected(seen.size());
  std::iota(expected.begin(), expected.end(), 1.0);
  EXPECT_EQ(seen.read(*consumer), expected);
  producer->synchronize();
}

TEST_P(DeviceConformance, WaitingForANeverRecordedEventDoesNothing) {
  const auto never = event();
  const auto lane = stream();
  const auto count = counter(*lane);
  lane->wait(*never);
  increment(*lane, count);
  EXPECT_EQ(count.read(*lane).front(), 1);
}

TEST_P(DeviceConformance, AWaitMeansTheRecordIssuedLastBeforeIt) {
  const auto again = event();
  const auto producer = stream("producer"), early = stream("early"), late = stream("late");
  const auto count = counter(*producer);
  const OnDevice<double> seen(*device_, 2);
  increment(*producer, count);
  producer->record(*again);
  early->wait(*again);
  late->wait(*again);
  early->copy({seen.data(), count.data(), sizeof(double)});
  early->synchronize();  // were the wait bound to the second record, it could not end before that is issued
  work_for(*producer, 0.02);
  increment(*producer, count);
  producer->record(*again);
  late->wait(*again);
  late->copy({seen.data() + 1, count.data(), sizeof(double)});
  EXPECT_EQ(seen.read(*late), (std::vector<double>{1, 2}));
  producer->synchronize();
}

TEST_P(DeviceConformance, AnEventRecordedAgainOnAnotherStreamKeepsItsEarlierWaitHonest) {
  const auto again = event();
  const auto slow = stream("slow"), quick = stream("quick"), waiting = stream("waiting");
  const auto count = counter(*slow);
  slow->synchronize();
  const OnDevice<double> seen(*device_, 1);
  work_for(*slow, 0.02);
  increment(*slow, count);
  slow->record(*again);
  waiting->wait(*again);
  waiting->copy({seen.data(), count.data(), sizeof(double)});
  quick->record(*again);
  EXPECT_EQ(seen.read(*waiting), std::vector<double>{1});
  quick->synchronize();
  slow->synchronize();
}

TEST_P(DeviceConformance, EventsCarryTheTimeTheyWereReached) {
  const auto before = event(), after = event();
  const auto lane = stream();
  const double issued = now_s(), error = GetParam().clock_error_s;
  lane->record(*before);
  work_for(*lane, 0.02);
  lane->record(*after);
  lane->synchronize();
  EXPECT_GE(before->seconds(), issued - error);
  EXPECT_GE(after->seconds() - before->seconds(), 0.02);
  EXPECT_LE(after->seconds(), now_s() + error);
}

TEST_P(DeviceConformance, HoldEndsNoEarlierThanItsPace) {
  const auto since = event(), after = event();
  const auto lane = stream(), other = stream("other");
  std::atomic<int64_t> overruns{0};
  for (const double pace : {1e-5, 1e-4, 1e-3, 1e-2}) {
    lane->mark(*since);
    other->wait(*since);
    for (Stream* held : {lane.get(), other.get()}) {
      held->hold(*since, {pace, &overruns});
      held->record(*after);
      held->synchronize();
      EXPECT_GE(after->seconds() - since->seconds(), pace - 1e-9);
    }
  }
}

TEST_P(DeviceConformance, HoldCountsWorkThatOutlastedItsPaceAndNothingElse) {
  const auto since = event();
  const auto lane = stream();
  std::atomic<int64_t> overruns{0};
  const auto paced = [&](double pace, bool work) {
    lane->mark(*since);
    if (work) work_for(*lane, 0.02);
    lane->hold(*since, {pace, &overruns});
    lane->synchronize();
    return overruns.load();
  };
  EXPECT_EQ(paced(1, false), 0);
  EXPECT_EQ(paced(0.001, true), 1);
  EXPECT_EQ(paced(0, true), 1) << "no pace, no overrun";
  EXPECT_EQ(paced(0.001, true), 2);
  lane->mark(*since);
  work_for(*lane, 0.002);
  lane->hold(*since, {0.001, nullptr});
  lane->synchronize();
}

TEST_P(DeviceConformance, EachCounterOfManyGetsItsOwnOverruns) {
  constexpr size_t kCounters = 200, kHolds = 3;
  const auto since = event();
  const auto lane = stream();
  std::vector<std::atomic<int64_t>> overruns(kCounters);
  lane->mark(*since);
  work_for(*lane, 1e-3);
  for (size_t i = 0; i < kHolds * kCounters; ++i)
    if (i % kCounters % 2 == 0) lane->hold(*since, {1e-6, &overruns[i % kCounters]});
  lane->synchronize();
  for (size_t i = 0; i < kCounters; ++i) EXPECT_EQ(overruns[i], i % 2 == 0 ? int64_t{kHolds} : 0) << i;
}

TEST_P(DeviceConformance, ManyStreamsChainedRoundRobinAllFinish) {
  constexpr int kStreams = 12, kRounds = 200;
  std::vector<std::unique_ptr<Stream>> lanes;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < kStreams; ++i) {
    lanes.push_back(device_->make_stream("lane", nullptr, i % 2 ? StreamPriority::high : StreamPriority::usual));
    events.push_back(event());
  }
  const auto count = counter(*lanes[0]);
  lanes[0]->synchronize();
  for (int i = 0; i < kStreams * kRounds; ++i) {
    const auto here = static_cast<size_t>(i % kStreams), before = static_cast<size_t>((i + kStreams - 1) % kStreams);
    lanes[here]->wait(*events[before]);
    increment(*lanes[here], count);
    lanes[here]->record(*events[here]);
  }
  for (const auto& lane : lanes) lane->synchronize();
  EXPECT_EQ(count.read(*lanes[0])[0], kStreams * kRounds);
}

TEST_P(DeviceConformance, SeveralThreadsMayIssue) {
  const auto lane = stream();
  const auto count = counter(*lane);
  std::vector<std::thread> issuers;
  for (int i = 0; i < 4; ++i)
    issuers.emplace_back([&] {
      for (int k = 0; k < 500; ++k) increment(*lane, count);
      lane->synchronize();
    });
  for (auto& issuer : issuers) issuer.join();
  EXPECT_EQ(count.read(*lane)[0], 2000);
}

TEST_P(DeviceConformance, StreamsAndEventsAndMemoryMayOutliveTheirDevice) {
  auto device = GetParam().make();
  const auto lane = device->make_stream("lane");
  const auto reached = device->make_event();
  const OnDevice<double> values(*device, *lane, {1, 2, 3});
  device.reset();
  lane->record(*reached);
  EXPECT_EQ(values.read(*lane), (std::vector<double>{1, 2, 3}));
  EXPECT_GT(reached->seconds(), 0);
}

}  // namespace
}  // namespace moe
