#pragma once
// A CUDA stream and its events, which implement moe/device/stream.h.
#include <cuda_runtime.h>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "moe/device/cuda/gpu.h"
#include "moe/device/stream.h"

namespace moe::cuda {

/// A recording: streams record their work instead of doing it (moe/device/recorded_work.h).
struct Recording {
  uint64_t id = 0;               // differs between recordings
  std::set<const Event*> timed;  // events that have a time after a replay
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(std::shared_ptr<Gpu> gpu);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  /// Returns the event's time. Its error is at most gpu.clock().error_s() plus a few millionths of the time from the
  /// event to the stream's synchronisation.
  double seconds() const override { return gpu_->clock().seconds(reached_); }

 private:
  friend class CudaStream;
  /// At the first mark, makes the memory in which the GPU stores the time of the last mark, and the event that follows
  /// the store.
  void prepare_mark();
  /// Makes this an event of a recording: its waits see only this record.
  void record_in(const Recording& recording, cudaStream_t stream);

  const std::shared_ptr<Gpu> gpu_;
  cudaEvent_t reached_ = nullptr, noted_ = nullptr;
  cudaEvent_t captured_ = nullptr;  // replaces reached_ in recordings; nothing outside of them may wait for it
  uint64_t recorded_in_ = 0;        // the last recording that recorded this event
  Memory time_ns_;
  bool marked_ = false;  // whether the last record was by mark()
};

/// A stream that queues all work on the GPU at once, on the calling thread. Exceptions of that work and errors of CUDA
/// calls fail the stream. A failed kernel makes the GPU unusable for this process; synchronize() reports it.
class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<Gpu> gpu, std::shared_ptr<Failure> failure, StreamPriority urgency);
  /// Waits for what is queued.
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void launch(std::function<void(void* native)> work) override;
  bool calls_work_immediately() const override { return true; }
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
  /// Sets the recording that the stream records into while CUDA captures it; null ends that.
  void set_recording(const Recording* recording) { recording_ = recording; }
  bool recording() const { return recording_ != nullptr; }
  /// Returns the Failure of this stream; code that detects failed work on the stream, such as NCCL's watcher, sets it.
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
  /// Counter i in mapped memory counts on behalf of *counted_[i], which the GPU can't access.
  std::vector<std::atomic<int64_t>*> counted_;
  Memory counters_;
  size_t kept_ = 0;  // counters [0, kept_) belong to recordings for good
};

}  // namespace moe::cuda
