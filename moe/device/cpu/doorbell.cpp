#include "moe/device/cpu/doorbell.h"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moe::cpu {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

timespec timespec_of(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

}  // namespace

void Doorbell::ring() noexcept {
  uint32_t old = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_weak(old, (old | 1) + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
  }
  if (old & 1) syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep_while(uint32_t seen, double deadline_s) noexcept {
  const uint32_t asleep = seen | 1;
  if (seen != asleep && !word_.compare_exchange_strong(seen, asleep, std::memory_order_acq_rel)) {
    if (seen != asleep) return;
  }
  if (deadline_s == kForever) {
    syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, asleep, nullptr, nullptr, 0);
    return;
  }
  const timespec until = timespec_of(deadline_s);
  syscall(SYS_futex, &word_, FUTEX_WAIT_BITSET_PRIVATE, asleep, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace moe::cpu
