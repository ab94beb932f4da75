#include "moe/device/cuda/cuda_stream.h"

#include <algorithm>
#include <utility>

#include "moe/base/check.h"
#include "moe/device/cuda/check.h"
#include "moe/device/cuda/kernels.h"

namespace moe::cuda {
namespace {

constexpr size_t kCounters = 64;

cudaEvent_t make_timed_event() {
  cudaEvent_t event = nullptr;
  MOE_CHECK_CUDA(cudaEventCreate(&event));
  return event;
}

}  // namespace

CudaEvent::CudaEvent(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {
  gpu_->use();
  reached_ = make_timed_event();
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(reached_);
  for (const cudaEvent_t made : {noted_, captured_})
    if (made) cudaEventDestroy(made);
}

void CudaEvent::prepare_mark() {
  if (noted_) return;
  time_ns_ = gpu_->allocate(sizeof(uint64_t));
  MOE_CHECK_CUDA(cudaEventCreateWithFlags(&noted_, cudaEventDisableTiming));
}

// Streams that wait for the record also wait until its time is stored, so that no task seems to begin before that time.
void CudaEvent::record_in(const Recording& recording, cudaStream_t stream) {
  if (!captured_) MOE_CHECK_CUDA(cudaEventCreateWithFlags(&captured_, cudaEventDisableTiming));
  if (recording.timed.contains(this))
    MOE_CHECK_CUDA(cudaEventRecordWithFlags(reached_, stream, cudaEventRecordExternal));
  MOE_CHECK_CUDA(cudaEventRecord(captured_, stream));
  recorded_in_ = recording.id;
}

CudaStream::CudaStream(std::shared_ptr<Gpu> gpu, std::shared_ptr<Failure> failure, StreamPriority urgency)
    : gpu_(std::move(gpu)), failure_(failure ? std::move(failure) : std::make_shared<Failure>()) {
  gpu_->use();
  int least = 0, greatest = 0;
  MOE_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const int priority = urgency == StreamPriority::high ? greatest : least;
  counters_ = gpu_->allocate_host(kCounters * sizeof(uint64_t));
  std::fill_n(static_cast<uint64_t*>(counters_.data()), kCounters, uint64_t{0});
  MOE_CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
}

CudaStream::~CudaStream() {
  attempt([this] { drain(); });
  cudaStreamDestroy(stream_);
}

template <class Body>
void CudaStream::attempt(Body&& body) noexcept {
  try {
    gpu_->use();
    body();
  } catch (...) {
    failure_->set(std::current_exception());
  }
}

void CudaStream::launch(std::function<void(void*)> work) {
  if (failure_->failed()) return;
  attempt([&] {
    work(stream_);
    const cudaError_t status = cudaGetLastError();
    // cudaErrorNotReady, which a query of an event leaves behind, is no failure.
    if (status != cudaErrorNotReady) check(status, "a kernel launch");
  });
}

void CudaStream::record(Event& event) {
  auto& recorded = static_cast<CudaEvent&>(event);
  recorded.marked_ = false;
  attempt([&] {
    if (recording_) return recorded.record_in(*recording_, stream_);
    MOE_CHECK_CUDA(cudaEventRecord(recorded.reached_, stream_));
  });
}

void CudaStream::wait(Event& event) {
  attempt([&] {
    const auto& awaited = static_cast<CudaEvent&>(event);
    require<Unsupported>(!recording_ || awaited.recorded_in_ == recording_->id,
                         "recorded passes: found a wait for work from outside, as ranks that share a GPU have it");
    MOE_CHECK_CUDA(cudaStreamWaitEvent(stream_, recording_ ? awaited.captured_ : awaited.reached_, 0));
  });
}

void CudaStream::mark(Event& since) {
  record(since);
  if (failure_->failed()) return;
  attempt([&] {
    auto& event = static_cast<CudaEvent&>(since);
    require<WrongResult>(!recording_ || event.noted_, "recorded passes: found a first mark, expected a run before");
    event.prepare_mark();
    // The GPU stores the time after the event, so that nothing held from then on ends before its pace.
    launch_timestamp(static_cast<uint64_t*>(event.time_ns_.data()), stream_);
    MOE_CHECK_CUDA(cudaEventRecord(event.noted_, stream_));
    event.marked_ = true;
  });
}

void CudaStream::hold(Event& since, Pace pace) {
  if (pace.at_least_s <= 0 || failure_->failed()) return;
  auto& event = static_cast<CudaEvent&>(since);
  require<WrongResult>(event.marked_, "hold() from an event that was recorded, expected a marked one");
  attempt([&] {
    const std::lock_guard lock(mutex_);
    MOE_CHECK_CUDA(cudaStreamWaitEvent(stream_, event.noted_, 0));
    launch_hold(static_cast<const uint64_t*>(event.time_ns_.data()), static_cast<uint64_t>(pace.at_least_s * 1e9),
                pace.overruns ? counter_of(pace.overruns) : nullptr, stream_);
  });
}

uint64_t* CudaStream::counter_of(std::atomic<int64_t>* overruns) {
  auto at = std::find(counted_.begin(), counted_.end(), overruns);
  if (at == counted_.end()) {
    if (counted_.size() == kCounters && !recording_) drain();
    require<Unsupported>(counted_.size() < kCounters, "recorded passes: found {} places for overruns on a stream",
                         kCounters);
    counted_.push_back(overruns);
    at = counted_.end() - 1;
  }
  if (recording_) kept_ = std::max(kept_, static_cast<size_t>(at - counted_.begin()) + 1);
  return static_cast<uint64_t*>(counters_.data()) + (at - counted_.begin());
}

void CudaStream::copy(Copy copy) {
  if (copy.bytes == 0 || copy.to == copy.from || failure_->failed()) return;
  attempt([&] {
    MOE_CHECK_CUDA(cudaMemcpyAsync(copy.to, copy.from, static_cast<size_t>(copy.bytes), cudaMemcpyDefault, stream_));
  });
}

void CudaStream::move(Moves moves) {
  if (failure_->failed()) return;
  attempt([&] {
    const size_t operands = std::max(moves.sum.from.size(), moves.sum.to.size());
    require<Unsupported>(operands <= kMaxSummands, "a sum of {} operands on a GPU, expected at most {}", operands,
                         kMaxSummands);
    launch_copies(moves.copies, stream_);
    launch_sum(moves.sum, stream_);
  });
}

void CudaStream::synchronize() {
  attempt([this] {
    require<Unsupported>(!recording_, "a pass in which the host waits cannot be recorded as a CUDA graph");
    const std::lock_guard lock(mutex_);
    drain();
    gpu_->clock().refresh();
  });
  failure_->rethrow();
}

// Callers hold the lock: no hold may be queued between the wait and the read of the counters.
void CudaStream::drain() {
  MOE_CHECK_CUDA(cudaStreamSynchronize(stream_));
  auto* counters = static_cast<uint64_t*>(counters_.data());
  for (size_t i = 0; i < counted_.size(); ++i)
    if (const uint64_t late = std::exchange(counters[i], 0); late > 0)
      counted_[i]->fetch_add(static_cast<int64_t>(late), std::memory_order_relaxed);
  counted_.resize(kept_);
}

}  // namespace moe::cuda
