#pragma once
// Tells who is alive by how long nothing was heard of them. Time counts only while we listened: a pause of the
// whole machine, or of us alone, is not the other's silence.
#include <algorithm>
#include <chrono>
#include <cstdint>

#include "moe/device/stream.h"

namespace moe::store {

class Liveness {
 public:
  explicit Liveness(double timeout_s) : timeout_s_(timeout_s), noted_s_(now_s()) {}

  /// Returns how long to wait before the next note.
  std::chrono::duration<double> step() const { return std::chrono::duration<double>(timeout_s_ / kSteps); }

  /// Notes what is heard now; silence is to hear the same again.
  void note(uint64_t heard) {
    const double now = now_s();
    silent_s_ = heard == heard_ ? silent_s_ + std::min(now - noted_s_, 2 * timeout_s_ / kSteps) : 0;
    heard_ = heard;
    noted_s_ = now;
  }
  double silent_s() const { return silent_s_; }
  bool timed_out() const { return silent_s_ >= timeout_s_; }

 private:
  static constexpr int kSteps = 10;

  double timeout_s_, noted_s_, silent_s_ = 0;
  uint64_t heard_ = 0;
};

}  // namespace moe::store
