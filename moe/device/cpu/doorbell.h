#pragma once
// A bell on which threads of one process wait: they sleep in the kernel until another thread rings.
//
// Idea: an event count on a futex (see futex(2)). A sleeper reads the count, checks its condition, and sleeps only if
// the count is still the same. Invariant: a ring changes the word, so no ring is lost between a sleeper's check and its
// sleep.
//
// Waiting never spins: with more threads than cores, spinning takes the core from the thread that should ring (10,000
// pauses made a paced run of 4 ranks on 2 cores four times as late). Nor does it yield: yielding makes collectives on
// an idle machine three times as fast, but if another process is busy, every yield costs milliseconds.
#include <atomic>
#include <cstdint>
#include <limits>

#include "moe/device/stream.h"

namespace moe::cpu {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

/// Counts its rings. Ringing costs one atomic operation while nobody sleeps, and at most one wake-up call for any
/// number of rings until the sleepers run again.
class Doorbell {
 public:
  /// Returns the number of rings so far, modulo 2^31.
  uint32_t rings() const noexcept { return word_.load(std::memory_order_acquire) >> 1; }
  void ring() noexcept;

  /// Returns true once ready() returns true, false if it does not by `deadline_s` (as now_s()). The thread that makes
  /// it true must ring afterwards.
  template <class Ready>
  bool wait_until(Ready&& ready, double deadline_s = kForever) noexcept {
    while (true) {
      const uint32_t seen = word_.load(std::memory_order_acquire);
      if (ready()) return true;
      if (deadline_s != kForever && now_s() >= deadline_s) return false;
      sleep_while(seen, deadline_s);
    }
  }

 private:
  void sleep_while(uint32_t seen, double deadline_s) noexcept;

  // Bit 0 is set while threads sleep; the bits above count the rings.
  std::atomic<uint32_t> word_{0};
};

}  // namespace moe::cpu
