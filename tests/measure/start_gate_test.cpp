// A sample behind a gate has none of the host's time in it, on a device that does at once what it is given.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "moe/measure/ops/rank_ops.h"
#include "tests/device/at_once_device.h"

namespace moe::measure {
namespace {

constexpr int kLaunches = 190;  // whose gate stays closed for 10 ms
constexpr double kHostS = 5e-3;

struct Timed {
  explicit Timed(Device& device)
      : lane(device.make_stream("lane")), gate(*lane), start(device.make_event()), end(device.make_event()) {
    lane->record(*end);
    lane->synchronize();  // its thread runs
  }
  // Queues two moments, and lets the host take its time between them.
  void issue(double host_s) {
    lane->mark(*start);
    sleep_until_s(now_s() + host_s);
    lane->record(*end);
  }
  double seconds() const { return end->seconds() - start->seconds(); }

  std::unique_ptr<Stream> lane;
  StartGate gate;
  std::unique_ptr<Event> start, end;
};

struct Seconds {
  double least, most;
};
// Of some tries, since any of them may be interrupted.
Seconds seconds_of(bool gated, double host_s) {
  const auto device = make_at_once_device();
  std::vector<double> all;
  for (int i = 0; i < 10; ++i) {
    Timed timed(*device);
    if (gated) timed.gate.close(kLaunches);
    timed.issue(host_s);
    timed.lane->synchronize();
    all.push_back(timed.seconds());
  }
  return {std::ranges::min(all), std::ranges::max(all)};
}

TEST(StartGate, TakesTheHostsTimeOutOfASample) {
  EXPECT_GE(seconds_of(false, kHostS).most, 0.9 * kHostS);
  EXPECT_LT(seconds_of(true, kHostS).least, 0.1 * kHostS);
}

TEST(StartGate, OpensByTimeAloneHoweverLateTheHostIs) { EXPECT_GE(seconds_of(true, 8 * kHostS).most, 4 * kHostS); }

TEST(StartGate, HoldsTwoLanesUntilOneMoment) {
  const auto device = make_at_once_device();
  double least = 1;
  for (int i = 0; i < 10; ++i) {
    Timed first(*device), second(*device);
    const double before = now_s();
    first.gate.close(kLaunches);
    first.issue(0);
    sleep_until_s(now_s() + kHostS);
    second.gate.close_with(first.gate);
    second.issue(0);
    for (Timed* each : {&first, &second}) each->lane->synchronize();
    EXPECT_GE(first.start->seconds() - before, StartGate::seconds_for(kLaunches));
    least = std::min(least, std::abs(second.start->seconds() - first.start->seconds()));
  }
  EXPECT_LT(least, 0.1 * kHostS) << "the second was issued so much later";
}

TEST(StartGate, IsOpenOnAStreamThatIsAThread) {
  const auto device = make_cpu_device();
  Timed timed(*device);
  const double before = now_s();
  timed.gate.close(1000000);
  timed.issue(0);
  timed.lane->synchronize();
  EXPECT_LT(timed.end->seconds() - before, StartGate::seconds_for(1000000));
}

TEST(StartGate, IsClosedForABoundedTime) {
  EXPECT_LT(StartGate::seconds_for(1), 1e-3);
  EXPECT_EQ(StartGate::seconds_for(1000), StartGate::seconds_for(1000000));
}

}  // namespace
}  // namespace moe::measure
