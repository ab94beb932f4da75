#pragma once
// A GPU's own clock: two events on a stream.
#include <cuda_runtime.h>
#include <functional>

#include "moe/device/cuda/check.h"

namespace moe::microbench {

class Stopwatch {
 public:
  Stopwatch() {
    MOE_CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&begin_, &end_}) MOE_CHECK_CUDA(cudaEventCreate(event));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_), cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  cudaStream_t stream() const { return stream_; }
  /// Times several runs that follow each other on the stream; returns the seconds of one.
  double seconds(const std::function<void()>& run) const {
    MOE_CHECK_CUDA(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < kRuns; ++i) run();
    MOE_CHECK_CUDA(cudaEventRecord(end_, stream_));
    MOE_CHECK_CUDA(cudaEventSynchronize(end_));
    float milliseconds = 0;
    MOE_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3 / kRuns;
  }

 private:
  static constexpr int kRuns = 20;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace moe::microbench
