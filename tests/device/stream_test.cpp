// What the CPU's streams promise beyond what every device does: closures run on the stream's thread, in its order.
#include "moe/device/stream.h"

#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/device/at_once_device.h"
#include "tests/device/device_conformance.h"

namespace moe {
namespace {

INSTANTIATE_TEST_SUITE_P(OnThreads, DeviceConformance,
                         testing::Values(DeviceFactory{"cpu", make_cpu_device},
                                         DeviceFactory{"at_once", make_at_once_device}),
                         DeviceConformance::name);

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

class StreamTest : public testing::Test {
 protected:
  std::unique_ptr<Stream> stream(std::string_view name = "lane") { return device_->make_stream(name); }
  std::unique_ptr<Event> event() { return device_->make_event(); }

  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_F(StreamTest, RunsWorkInOrderOnItsOwnThread) {
  std::vector<int> seen;
  std::thread::id thread;
  const auto lane = stream();
  for (int i = 0; i < 10000; ++i)
    lane->launch([&, i](void*) {
      seen.push_back(i);
      thread = std::this_thread::get_id();
    });
  lane->synchronize();
  std::vector<int> expected(10000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(StreamTest, SynchronizesWithNothingQueuedAndRepeatedly) {
  const auto lane = stream();
  lane->synchronize();
  for (int round = 0; round < 1000; ++round) {
    int value = 0;
    lane->launch([&](void*) { value = round + 1; });
    lane->synchronize();
    EXPECT_EQ(value, round + 1);
  }
}

TEST_F(StreamTest, DestructionRunsWhatIsQueued) {
  int done = 0;
  {
    const auto lane = stream();
    for (int i = 0; i < 100; ++i) lane->launch([&](void*) { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST_F(StreamTest, WorkIsDestroyedBeforeALaterEventIsReached) {
  const auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  const auto reached = event();
  const auto first = stream(), second = stream();
  bool gone = false;
  first->launch([mine = std::make_shared<std::shared_ptr<int>>(owned)](void*) { nap(); });
  first->record(*reached);
  second->wait(*reached);
  second->launch([&](void*) { gone = watch.use_count() == 1; });
  second->synchronize();
  EXPECT_TRUE(gone);
  first->synchronize();
}

TEST_F(StreamTest, WaitOrdersStreams) {
  const auto ready = event();
  const auto producer = stream("producer"), consumer = stream("consumer");
  for (int round = 0; round < 2000; ++round) {
    int value = -1, seen = -2;  // plain on purpose: the event alone orders them
    producer->launch([&](void*) { value = round; });
    producer->record(*ready);
    consumer->wait(*ready);
    consumer->launch([&](void*) { seen = value; });
    consumer->synchronize();
    producer->synchronize();
    EXPECT_EQ(seen, round);
  }
}

TEST_F(StreamTest, WaitMeansTheRecordIssuedLastBeforeIt) {
  const auto again = event();
  const auto producer = stream("producer"), early = stream("early"), late = stream("late");
  std::atomic<int> passed{0};
  std::atomic<bool> open{false};
  int seen_early = -1;
  producer->launch([&](void*) { passed = 1; });
  producer->record(*again);
  early->wait(*again);
  early->launch([&](void*) {
    seen_early = passed;
    open = true;  // were the wait bound to the second record, this would never come
  });
  producer->launch([&](void*) {
    while (!open) std::this_thread::yield();
    nap();
    passed = 2;
  });
  producer->record(*again);
  int seen_late = -1;
  late->wait(*again);
  late->launch([&](void*) { seen_late = passed; });
  for (const auto* lane : {&early, &late, &producer}) (*lane)->synchronize();
  EXPECT_EQ(seen_early, 1);
  EXPECT_EQ(seen_late, 2);
}

TEST_F(StreamTest, SeveralThreadsMayIssue) {
  const auto lane = stream();
  int64_t counter = 0;
  std::vector<std::thread> issuers;
  for (int i = 0; i < 4; ++i)
    issuers.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) lane->launch([&](void*) { ++counter; });
      lane->synchronize();
    });
  for (auto& issuer : issuers) issuer.join();
  EXPECT_EQ(counter, 4000);
}

}  // namespace
}  // namespace moe
