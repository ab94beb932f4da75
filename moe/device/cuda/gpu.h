#pragma once
// This process's context of one GPU. Streams, events and memory made on it share its ownership, so it outlives them.
#include <cstdint>
#include <cuda_runtime.h>
#include <memory>

#include "moe/device/cuda/clock.h"
#include "moe/device/memory.h"

namespace moe::cuda {

class Gpu : public std::enable_shared_from_this<Gpu> {
 public:
  /// Makes the context of GPU `index` of gpu_count().
  static std::shared_ptr<Gpu> open(int index);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int index() const { return index_; }
  /// Makes this the calling thread's GPU: CUDA has one current GPU per thread.
  void use() const;
  Clock& clock() { return *clock_; }

  /// Takes a block from the GPU's memory pool, which keeps freed blocks for later calls. The block is ready for any
  /// stream; freed memory may be handed out again at once.
  Memory allocate(int64_t bytes);
  /// Returns page-locked memory, which the GPU reads and writes too, at the same address.
  Memory allocate_host(int64_t bytes);

 private:
  explicit Gpu(int index);
  [[noreturn]] void refuse(int64_t bytes, const char* where) const;

  const int index_;
  bool pooled_ = false;
  cudaStream_t memory_stream_ = nullptr;
  std::unique_ptr<Clock> clock_;
};

}  // namespace moe::cuda
