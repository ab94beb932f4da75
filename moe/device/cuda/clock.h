#pragma once
// Reads a GPU's events on the host's steady clock.
#include <cuda_runtime.h>
#include <mutex>
#include <utility>

namespace moe::cuda {

/// Knows at what moment of now_s() the GPU reached a reference event, by Cristian's algorithm (Probabilistic clock
/// synchronization, 1989): half way between asking and hearing, in the quickest of some tries. How much earlier or
/// later other events are, the GPU's own timer says. Moments read between two refreshes share a reference, so their
/// differences have no error but the GPU timer's (about 0.5 us). A clock is of the GPU that is current in the thread
/// that makes it; threads may call it at once.
class Clock {
 public:
  Clock();
  ~Clock();
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  /// Takes a new reference if the last is older than 0.1 s, unless it is worse than the old one with what the two
  /// clocks drift apart by: microseconds a second.
  void refresh();
  /// Returns when the GPU reached `event`. Throws RankFailure if it has not.
  double seconds(cudaEvent_t event);
  /// Returns how far off the reference may be: half the time between asking for it and seeing it reached.
  double error_s();

 private:
  void take_reference(double better_than_s);

  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;  // idle, so that it reaches what it is given at once
  cudaEvent_t reference_ = nullptr, spare_ = nullptr;
  double reference_s_ = 0, error_s_ = 0;
};

}  // namespace moe::cuda
