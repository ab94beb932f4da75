#include "moe/device/failure.h"

#include <chrono>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>

#include "moe/device/stream.h"

namespace moe {
namespace {

std::string error_of(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

TEST(FailureTest, TheFirstExceptionIsKeptAndLaterWorkSkipped) {
  const auto device = make_cpu_device();
  const auto lane = device->make_stream("lane");
  bool skipped = true;
  lane->launch([](void*) { fail("first"); });
  lane->launch([](void*) { fail("second"); });
  lane->launch([&](void*) { skipped = false; });
  EXPECT_EQ(error_of(*lane), "first");
  EXPECT_EQ(error_of(*lane), "first") << "sticky";
  EXPECT_TRUE(skipped);
}

TEST(FailureTest, EventsAfterAFailureAreReachedSoThatOthersDontHang) {
  const auto device = make_cpu_device();
  const auto reached = device->make_event();
  const auto broken = device->make_stream("broken"), well = device->make_stream("well");
  bool ran = false;
  broken->launch([](void*) { fail("broken"); });
  broken->record(*reached);
  well->wait(*reached);
  well->launch([&](void*) { ran = true; });
  EXPECT_EQ(error_of(*well), "none") << "without a shared Failure a stream fails alone";
  EXPECT_TRUE(ran);
  EXPECT_EQ(error_of(*broken), "broken");
}

TEST(FailureTest, StreamsThatShareAFailureFailTogether) {
  const auto device = make_cpu_device();
  const auto shared = std::make_shared<Failure>();
  const auto reached = device->make_event();
  const auto broken = device->make_stream("broken", shared), other = device->make_stream("other", shared);
  bool skipped = true;
  broken->launch([](void*) { fail("broken"); });
  broken->record(*reached);
  other->wait(*reached);
  other->launch([&](void*) { skipped = false; });
  EXPECT_EQ(error_of(*other), "broken");
  EXPECT_TRUE(skipped);
  EXPECT_EQ(error_of(*broken), "broken");

  shared->clear();
  bool ran = false;
  other->launch([&](void*) { ran = true; });
  EXPECT_EQ(error_of(*other), "none");
  EXPECT_TRUE(ran);
}

TEST(FailureTest, HoldsAreSkippedAndCountNothing) {
  const auto device = make_cpu_device();
  const auto since = device->make_event();
  const auto lane = device->make_stream("lane");
  std::atomic<int64_t> overruns{0};
  const double begin = now_s();
  lane->record(*since);
  lane->launch([](void*) { fail("broken"); });
  lane->hold(*since, {3600, &overruns});
  lane->hold(*since, {1e-9, &overruns});
  EXPECT_EQ(error_of(*lane), "broken");
  EXPECT_LT(now_s() - begin, 600);
  EXPECT_EQ(overruns, 0);
}

TEST(FailureTest, SkippedWorkIsDestroyed) {
  const auto device = make_cpu_device();
  const auto lane = device->make_stream("lane");
  const auto owned = std::make_shared<int>(0);
  lane->launch([](void*) { fail("broken"); });
  lane->launch([owned](void*) {});
  EXPECT_EQ(error_of(*lane), "broken");
  EXPECT_EQ(owned.use_count(), 1);
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
