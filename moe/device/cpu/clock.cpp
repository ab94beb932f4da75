#include "moe/device/cpu/clock.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <sys/prctl.h>

#include "moe/device/cpu/pace_clock.h"
#include "moe/device/stream.h"

namespace moe::cpu {

void set_minimal_timer_slack() {
  thread_local bool punctual = false;
  if (!punctual) punctual = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
}

double PaceClock::time_s() {
  if (!paced_) at_s_ = now_s();
  return at_s_;
}

bool PaceClock::hold_until(double ends_s) {
  const double now = now_s();
  ++holds_;
  paced_ = true;
  const bool in_time = now <= ends_s + kMaxLateS;
  at_s_ = in_time ? ends_s : now;
  sleep_until_s(ends_s);
  return in_time;
}

void PaceClock::wait(double seconds, bool paced) {
  if (paced_ ? seconds <= at_s_ : now_s() > seconds + kMaxLateS) return;
  paced_ = paced;
  at_s_ = std::max(at_s_, seconds);
}

void PaceClock::worked() {
  if (!paced_) return;
  const double now = now_s();
  if (now > at_s_ + kMaxLateS) at_s_ = now;
}

}  // namespace moe::cpu

namespace moe {

double now_s() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void sleep_until_s(double deadline_s) {
  const double wake_s = deadline_s - cpu::kSpinS;
  if (now_s() < wake_s) {
    cpu::set_minimal_timer_slack();
    const auto whole = static_cast<time_t>(wake_s);
    const timespec until{whole, static_cast<long>((wake_s - static_cast<double>(whole)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
  while (now_s() < deadline_s) {
  }
}

}  // namespace moe
