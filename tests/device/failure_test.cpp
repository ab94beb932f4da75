#include "moe/device/failure.h"

#include <stdexcept>
#include <string>
#include <thread>

#include "tests/base/error_of.h"
#include "tests/device/device_conformance.h"

namespace moe {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

TEST_P(DeviceConformance, TheFirstExceptionIsKeptAndLaterWorkSkipped) {
  const auto lane = stream();
  bool skipped = true;
  lane->launch([](void*) { fail("first"); });
  lane->launch([](void*) { fail("second"); });
  lane->launch([&](void*) { skipped = false; });
  EXPECT_EQ(error_of<std::runtime_error>([&] { lane->synchronize(); }), "first");
  EXPECT_EQ(error_of<std::runtime_error>([&] { lane->synchronize(); }), "first") << "sticky";
  EXPECT_TRUE(skipped);
}

TEST_P(DeviceConformance, EventsAfterAFailureAreReachedSoThatOthersDontHang) {
  const auto reached = event();
  const auto broken = stream("broken"), well = stream("well");
  bool ran = false;
  broken->launch([](void*) { fail("broken"); });
  broken->record(*reached);
  well->wait(*reached);
  well->launch([&](void*) { ran = true; });
  EXPECT_EQ(error_of<std::runtime_error>([&] { well->synchronize(); }), "none")
      << "without a shared Failure a stream fails alone";
  EXPECT_TRUE(ran);
  EXPECT_EQ(error_of<std::runtime_error>([&] { broken->synchronize(); }), "broken");
}

TEST_P(DeviceConformance, StreamsThatShareAFailureFailTogether) {
  const auto shared = std::make_shared<Failure>();
  const auto reached = event();
  const auto broken = device_->make_stream("broken", shared), other = device_->make_stream("other", shared);
  bool skipped = true;
  broken->launch([](void*) { fail("broken"); });
  broken->record(*reached);
  other->wait(*reached);
  other->launch([&](void*) { skipped = false; });
  EXPECT_EQ(error_of<std::runtime_error>([&] { other->synchronize(); }), "broken");
  EXPECT_TRUE(skipped);
  EXPECT_EQ(error_of<std::runtime_error>([&] { broken->synchronize(); }), "broken");

  shared->clear();
  bool ran = false;
  other->launch([&](void*) { ran = true; });
  EXPECT_EQ(error_of<std::runtime_error>([&] { other->synchronize(); }), "none");
  EXPECT_TRUE(ran);
}

TEST_P(DeviceConformance, HoldsAreSkippedAndCountNothing) {
  const auto since = event();
  const auto lane = stream();
  std::atomic<int64_t> overruns{0};
  const double begin = now_s();
  lane->mark(*since);
  lane->launch([](void*) { fail("broken"); });
  lane->hold(*since, {3600, &overruns});
  lane->hold(*since, {1e-9, &overruns});
  EXPECT_EQ(error_of<std::runtime_error>([&] { lane->synchronize(); }), "broken");
  EXPECT_LT(now_s() - begin, 600);
  EXPECT_EQ(overruns, 0);
}

TEST_P(DeviceConformance, SkippedWorkIsDestroyed) {
  const auto lane = stream();
  const auto owned = std::make_shared<int>(0);
  lane->launch([](void*) { fail("broken"); });
  lane->launch([owned](void*) {});
  EXPECT_EQ(error_of<std::runtime_error>([&] { lane->synchronize(); }), "broken");
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_P(DeviceConformance, CopiesAndSumsAreSkippedAfterAFailure) {
  const auto shared = std::make_shared<Failure>();
  const auto lane = device_->make_stream("lane", shared);
  const auto count = counter(*lane);
  increment(*lane, count);
  lane->synchronize();
  lane->launch([](void*) { fail("broken"); });
  increment(*lane, count);
  lane->copy({count.data(), count.data() + 1, sizeof(double)});
  EXPECT_EQ(error_of<std::runtime_error>([&] { lane->synchronize(); }), "broken");
  shared->clear();
  EXPECT_EQ(count.read(*lane), (std::vector<double>{1, 1}));
}

TEST(FailureTest, OfSeveralThreadsOneWins) {
  Failure failure;
  failure.rethrow();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] { failure.set(std::make_exception_ptr(std::runtime_error(std::to_string(i)))); });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(failure.failed());
  EXPECT_THROW(failure.rethrow(), std::runtime_error);
}

}  // namespace
}  // namespace moe
