// Paces count from the moments that were meant. What a test may say of them holds however late its threads run.
#include "moe/device/cpu/pace_clock.h"

#include <atomic>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "moe/device/stream.h"

namespace moe {
namespace {

constexpr double kRoundingS = 1e-9;  // of seconds since the machine started
constexpr double kMaxLateS = cpu::PaceClock::kMaxLateS;

class PaceClockTest : public testing::Test {
 protected:
  static void nap(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  /// A paced task, as the executor issues one.
  void task(Stream& lane, Event& start, Event& end, double pace_s, double work_s = 0) {
    lane.mark(start);
    if (work_s > 0) lane.launch([work_s](void*) { nap(work_s); });
    lane.hold(start, {pace_s, &overruns_});
    lane.record(end);
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  std::unique_ptr<Stream> lane_ = device_->make_stream("lane"), other_ = device_->make_stream("other");
  std::atomic<int64_t> overruns_{0};
};

TEST_F(PaceClockTest, LateWakeUpsDoNotAddUp) {
  constexpr int kTasks = 100;
  constexpr double kPaceS = 1e-3;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 2 * kTasks; ++i) events.push_back(device_->make_event());
  const auto at = [&](int i) -> Event& { return *events[i]; };
  const auto lane_of = [&](int i) -> Stream& { return i % 2 == 0 ? *lane_ : *other_; };
  lane_->launch([](void*) { nap(0.02); });  // all is issued meanwhile
  for (int i = 0; i < kTasks; ++i) {
    if (i > 0) lane_of(i).wait(at(2 * i - 1));
    task(lane_of(i), at(2 * i), at(2 * i + 1), kPaceS);
  }
  lane_->synchronize();
  other_->synchronize();
  const double lasted = at(2 * kTasks - 1).seconds() - at(0).seconds();
  EXPECT_GE(lasted, kTasks * kPaceS - kTasks * kRoundingS);
  if (overruns_ > 0) GTEST_SKIP() << "something else took the cores";
  double late = 0;
  for (int i = 1; i < kTasks; ++i) {
    const double by = at(2 * i).seconds() - at(2 * i - 1).seconds();
    EXPECT_TRUE(std::abs(by) <= kRoundingS || by > kMaxLateS) << "task " << i << " began " << by << " s late";
    late += by;
  }
  EXPECT_NEAR(lasted, kTasks * kPaceS + late, kTasks * kRoundingS);
}

TEST_F(PaceClockTest, WorkThatOutlastsItsPaceTakesTheTimeThatItTakes) {
  const auto start = device_->make_event(), end = device_->make_event(), after = device_->make_event();
  task(*lane_, *start, *end, 1e-3, 0.02);
  task(*lane_, *end, *after, 1e-3);
  lane_->synchronize();
  EXPECT_GE(end->seconds() - start->seconds(), 0.02);
  EXPECT_GE(overruns_, 1);
}

TEST_F(PaceClockTest, WorkWithoutAPaceBehindPacesTakesItsTimeWhereItIsLong) {
  const auto start = device_->make_event(), end = device_->make_event(), after = device_->make_event();
  task(*lane_, *start, *end, 1e-3);
  lane_->launch([](void*) { nap(0.02); });
  lane_->record(*after);
  lane_->synchronize();
  EXPECT_GE(after->seconds() - end->seconds(), 0.02 - 1e-3);
}

TEST_F(PaceClockTest, AMomentOfNoPaceIsTheWalls) {
  const auto start = device_->make_event(), end = device_->make_event(), later = device_->make_event();
  task(*lane_, *start, *end, 1e-3);
  lane_->synchronize();
  nap(0.02);
  const double before = now_s();
  lane_->record(*later);
  lane_->synchronize();
  EXPECT_GE(later->seconds(), before);
}

TEST_F(PaceClockTest, WhoWaitsTakesTheLatestMomentMeant) {
  const auto short_start = device_->make_event(), short_end = device_->make_event();
  const auto long_start = device_->make_event(), long_end = device_->make_event(), both = device_->make_event();
  const auto third = device_->make_stream("third");
  task(*lane_, *short_start, *short_end, 1e-3);
  task(*other_, *long_start, *long_end, 0.02);
  third->wait(*long_end);
  third->wait(*short_end);
  third->record(*both);
  for (Stream* each : {lane_.get(), other_.get(), third.get()}) each->synchronize();
  EXPECT_GE(both->seconds(), long_end->seconds());
}

TEST_F(PaceClockTest, WhatIsLongPastChangesNothing) {
  const auto start = device_->make_event(), end = device_->make_event(), later = device_->make_event();
  task(*lane_, *start, *end, 1e-3);
  lane_->synchronize();
  nap(0.02);
  const double before = now_s();
  other_->wait(*end);
  other_->record(*later);
  other_->synchronize();
  EXPECT_GE(later->seconds(), before);
}

TEST_F(PaceClockTest, AnEarlierMomentOfNoPaceTakesNothingFromAPacedLane) {
  const auto early = device_->make_event(), start = device_->make_event(), end = device_->make_event(),
             after = device_->make_event();
  other_->record(*early);
  lane_->launch([](void*) { nap(0.02); });  // all is issued meanwhile
  task(*lane_, *start, *end, 1e-3);
  lane_->wait(*early);
  lane_->record(*after);
  lane_->synchronize();
  EXPECT_EQ(after->seconds(), end->seconds());
}

TEST_F(PaceClockTest, NeverGoesBackOnALaneThatIdledMeanwhile) {
  cpu::PaceClock clock;
  clock.hold_until(now_s() + 1e-3);
  const double end = clock.time_s();
  clock.idle();
  clock.wait(end - 0.9 * kMaxLateS, true);
  EXPECT_GE(clock.time_s(), end);
  clock.idle();
  const double told = clock.time_s();
  clock.wait(told - 0.9 * kMaxLateS, true);
  EXPECT_GE(clock.time_s(), told);
}

}  // namespace
}  // namespace moe
