#pragma once
// What threads of one process wait on: sleep in the kernel until somebody rings.
//
// Waiting never spins: with more threads than cores that takes the core from whoever is waited for (10,000 pauses made
// a paced run of 4 ranks on 2 cores four times as late). Nor does it yield: that makes collectives on an idle machine
// three times as fast, but beside one busy process every yield costs milliseconds.
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
  /// Modulo 2^31.
  uint32_t rings() const noexcept { return word_.load(std::memory_order_acquire) >> 1; }
  void ring() noexcept;

  /// Returns true once `ready()` holds, false once `deadline_s` (of now_s()) has passed without it. Whoever makes it
  /// hold rings afterwards.
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

  // Bit 0: somebody sleeps; the bits above: rings. One word, so that no ring can fall between a sleeper's look and its
  // sleep.
  std::atomic<uint32_t> word_{0};
};

}  // namespace moe::cpu
