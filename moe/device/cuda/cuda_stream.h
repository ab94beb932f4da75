#pragma once
// A CUDA stream and its events behind moe/device/stream.h.
#include <cuda_runtime.h>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "moe/device/cuda/gpu.h"
#include "moe/device/stream.h"

namespace moe::cuda {

/// What streams record instead of doing it (moe/device/recorded_work.h).
struct Recording {
  uint64_t id = 0;               // differs from those of all others
  std::set<const Event*> timed;  // these have a time after a replay
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<Gpu> gpu);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  /// Returns a time that is off by gpu.clock().error_s() at most, and by a few parts in a million of its age when the
  /// stream was synchronised.
  double seconds() const override { return gpu_->clock().seconds(reached_); }

 private:
  friend class CudaStream;
  /// Makes, at the first mark, the place where the GPU notes the time of the last mark, and the event that says it has.
  void prepare_mark();
  /// Becomes an event of a recording: its waits see this record alone.
  void record_in(const Recording& recording, cudaStream_t stream);

  const std::shared_ptr<Gpu> gpu_;
  cudaEvent_t reached_ = nullptr, noted_ = nullptr;
  cudaEvent_t captured_ = nullptr;  // stands for reached_ in recordings, which outside of them nothing may wait for
  uint64_t recorded_in_ = 0;        // the last recording that it is an event of
  Memory time_ns_;
  bool marked_ = false;  // rather than recorded, the last time
};

/// Gives the GPU everything on the calling thread, at once; what throws there, and what CUDA refuses, fails the stream.
/// A kernel that went wrong fails the whole GPU for this process; synchronize() finds that out.
class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<Gpu> gpu, std::shared_ptr<Failure> failure, Urgency urgency);
  /// Waits for what is queued.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void launch(std::function<void(void* native)> work) override;
  bool calls_at_once() const override { return true; }
  void record(Event& event) override;
  void wait(Event& event) override;
  void mark(Event& since) override;
  void hold(Event& since, Pace pace) override;
  void copy(Copy copy) override;
  void move(Moves moves) override;
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(gpu_); }
  void synchronize() override;

  Gpu& gpu() const { return *gpu_; }
  cudaStream_t native() const { return stream_; }
  /// Sets what the stream, while CUDA captures it, records; null: nothing, any more.
  void set_recording(const Recording* recording) { recording_ = recording; }
  bool recording() const { return recording_ != nullptr; }
  /// Returns the failure to set for whoever finds that queued work failed by other means than this stream.
  const std::shared_ptr<Failure>& failure() const { return failure_; }

 private:
  template <class Body>
  void attempt(Body&& body) noexcept;
  uint64_t* counter_of(std::atomic<int64_t>* overruns);
  void drain();

  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<Failure> failure_;
  cudaStream_t stream_ = nullptr;
  const Recording* recording_ = nullptr;

  std::mutex mutex_;  // guards all below
  /// Counter i of the mapped memory is for counted_[i], which the GPU can't reach.
  std::vector<std::atomic<int64_t>*> counted_;
  Memory counters_;
  size_t kept_ = 0;  // so many of the first counters are a recording's for good
};

}  // namespace moe::cuda
