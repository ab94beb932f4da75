#include "moe/device/cuda/check.h"

#include "moe/base/check.h"

namespace moe::cuda {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // or the next launch on this thread would report it once more
  throw RankFailure(fmt::format("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status)));
}

}  // namespace moe::cuda
