#pragma once
// A stopwatch that times kernels on a GPU by two CUDA events on a stream.
#include <algorithm>
#include <cuda_runtime.h>
#include <functional>

#include "moe/device/cuda/check.h"
#include "moe/measure/kernels/kernel_bench.h"
#include "moe/tensor/tensor.h"

namespace moe::microbench {

class Stopwatch {
 public:
  explicit Stopwatch(MemorySpace& memory) : flushed_({kFlushBytes}, DType::float32, memory) {
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
  /// Sets the functions of `kernel` that time it with a cold and with a warm L2 cache.
  void time(measure::Kernel& kernel) const {
    kernel.seconds = [this, run = kernel.run] { return cold_seconds(run); };
    kernel.warm_seconds = [this, run = kernel.run] { return warm_seconds(run); };
  }

 private:
  static constexpr int64_t kFlushBytes =
      64 << 20;  // count of 4-byte numbers; together larger than the L2 cache of every GPU
  static constexpr int kColdRuns = 5, kWarmRuns = 20;
  static constexpr double kWarmS = 5e-3;

  double time_once(const std::function<void()>& run) const {
    MOE_CHECK_CUDA(cudaEventRecord(begin_, stream_));
    run();
    MOE_CHECK_CUDA(cudaEventRecord(end_, stream_));
    MOE_CHECK_CUDA(cudaEventSynchronize(end_));
    float milliseconds = 0;
    MOE_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }
  // Returns the mean seconds of several runs, before each of which the L2 cache is filled with other data. The fill
  // keeps the GPU busy while the CPU launches the run, so the time does not include the launch.
  double cold_seconds(const std::function<void()>& run) const {
    double sum = 0;
    for (int i = 0; i < kColdRuns; ++i) {
      MOE_CHECK_CUDA(cudaMemsetAsync(flushed_.view().data(), i, static_cast<size_t>(flushed_.view().bytes()), stream_));
      sum += time_once(run);
    }
    return sum / kColdRuns;
  }
  // Returns the mean seconds of consecutive runs, which together take about kWarmS.
  double warm_seconds(const std::function<void()>& run) const {
    const int runs = std::clamp(static_cast<int>(kWarmS / time_once(run)), 1, kWarmRuns);
    return time_once([&] {
             for (int i = 0; i < runs; ++i) run();
           }) /
           runs;
  }

  Tensor flushed_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace moe::microbench
