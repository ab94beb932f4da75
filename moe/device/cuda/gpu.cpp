#include "moe/device/cuda/gpu.h"

#include <limits>

#include "moe/base/units.h"
#include "moe/device/cuda/check.h"
#include "moe/device/cuda/kernels.h"

namespace moe::cuda {
namespace {

std::string human(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

}  // namespace

std::shared_ptr<Gpu> Gpu::open(int index) { return std::shared_ptr<Gpu>(new Gpu(index)); }

Gpu::Gpu(int index) : index_(index) {
  use();
  int pools = 0;
  MOE_CHECK_CUDA(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index_));
  pooled_ = pools != 0;
  if (pooled_) {
    cudaMemPool_t pool = nullptr;
    MOE_CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, index_));
    uint64_t keep = std::numeric_limits<uint64_t>::max();
    MOE_CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  MOE_CHECK_CUDA(cudaStreamCreateWithFlags(&memory_stream_, cudaStreamNonBlocking));
  load_kernels();
  clock_ = std::make_unique<Clock>();
}

Gpu::~Gpu() {
  cudaSetDevice(index_);
  clock_.reset();
  cudaStreamDestroy(memory_stream_);
}

void Gpu::use() const { MOE_CHECK_CUDA(cudaSetDevice(index_)); }

Memory Gpu::allocate(int64_t bytes) {
  if (bytes == 0) return {};
  use();
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  const cudaError_t status = pooled_ ? cudaMallocAsync(&data, size, memory_stream_) : cudaMalloc(&data, size);
  if (status == cudaErrorMemoryAllocation) refuse(bytes, "of memory");
  MOE_CHECK_CUDA(status);
  Memory memory(data, bytes, [gpu = shared_from_this()](void* owned) {
    cudaSetDevice(gpu->index_);
    if (gpu->pooled_)
      cudaFreeAsync(owned, gpu->memory_stream_);
    else
      cudaFree(owned);
  });
  if (pooled_) MOE_CHECK_CUDA(cudaStreamSynchronize(memory_stream_));
  return memory;
}

Memory Gpu::allocate_host(int64_t bytes) {
  if (bytes == 0) return {};
  use();
  void* data = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) refuse(bytes, "of page-locked host memory");
  MOE_CHECK_CUDA(status);
  return {data, bytes, [gpu = shared_from_this()](void* owned) { cudaFreeHost(owned); }};
}

void Gpu::refuse(int64_t bytes, const char* where) const {
  cudaGetLastError();
  size_t left = 0, all = 0;
  cudaMemGetInfo(&left, &all);
  throw OutOfMemory(fmt::format("GPU {}: needs {} more {}, but of its {} only {} are free", index_, human(bytes), where,
                                human(static_cast<int64_t>(all)), human(static_cast<int64_t>(left))));
}

}  // namespace moe::cuda
