#pragma once
// Reads a GPU's events on the host's steady clock.
#include <cuda_runtime.h>
#include <mutex>
#include <utility>

namespace moe::cuda {

/// A clock of the moments of now_s() at which the GPU reached events. The moment of a reference event comes from
/// Cristian's algorithm (Probabilistic clock synchronization, 1989): the middle between recording the event and seeing
/// it reached, in the fastest of a few tries. The GPU's own timer gives the distance of other events from it. Moments
/// read between two refreshes share a reference, so their differences have only the GPU timer's error (about 0.5 us). A
/// clock belongs to the GPU that is current in the thread that makes it; threads may call it at once.
class Clock {
 public:
  Clock();
  ~Clock();
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  /// Takes a new reference if the last is older than 0.1 s, unless the new error is larger than the old one plus the
  /// drift of the two clocks since then (microseconds per second).
  void refresh();
  /// Returns when the GPU reached `event`. Throws RankFailure if it has not.
  double seconds(cudaEvent_t event);
  /// Returns the largest error of the reference: half the time between asking for it and seeing it reached.
  double error_s();

 private:
  void take_reference(double better_than_s);

  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;  // idle, so that it reaches an event as soon as it is recorded
  cudaEvent_t reference_ = nullptr, spare_ = nullptr;
  double reference_s_ = 0, error_s_ = 0;
};

}  // namespace moe::cuda
