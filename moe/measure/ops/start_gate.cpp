#include "moe/measure/ops/start_gate.h"

#include <algorithm>

namespace moe::measure {
namespace {

constexpr double kBarrierS = 500e-6, kLaunchS = 50e-6, kMostS = 20e-3;

}  // namespace

double StartGate::seconds_for(int launches) { return std::min(kBarrierS + kLaunchS * launches, kMostS); }

void StartGate::close(int launches) {
  if (!lane_.calls_at_once()) return;
  seconds_ = seconds_for(launches);
  lane_.mark(*closed_);
  lane_.hold(*closed_, {.at_least_s = seconds_});
}

void StartGate::close_with(StartGate& first) {
  if (!lane_.calls_at_once()) return;
  lane_.wait(*first.closed_);
  lane_.hold(*first.closed_, {.at_least_s = first.seconds_});
}

}  // namespace moe::measure
