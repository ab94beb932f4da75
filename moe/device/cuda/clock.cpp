#include "moe/device/cuda/clock.h"

#include <limits>

#include "moe/device/cuda/check.h"
#include "moe/device/stream.h"

namespace moe::cuda {
namespace {

constexpr double kFreshS = 0.1;
// An interrupted try sees its event late; of a few tries, at least one is not interrupted.
constexpr int kTries = 8;
constexpr double kGoodEnoughS = 3e-6;
// A try of this duration waited for another stream's kernels, as the next try would.
constexpr double kBlockedS = 1e-3;
constexpr double kDrift = 1e-5;  // seconds per second: more than the two clocks drift apart

void spin_until_reached(cudaEvent_t event) {
  cudaError_t status = cudaErrorNotReady;
  while ((status = cudaEventQuery(event)) == cudaErrorNotReady) {
  }
  cudaGetLastError();  // "not ready" would be taken for a failed launch
  MOE_CHECK_CUDA(status);
}

}  // namespace

Clock::Clock() {
  int least = 0, greatest = 0;
  MOE_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  MOE_CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  MOE_CHECK_CUDA(cudaEventCreate(&reference_));
  MOE_CHECK_CUDA(cudaEventCreate(&spare_));
  take_reference(std::numeric_limits<double>::infinity());
}

Clock::~Clock() {
  cudaEventDestroy(spare_);
  cudaEventDestroy(reference_);
  cudaStreamDestroy(stream_);
}

void Clock::refresh() {
  const std::lock_guard lock(mutex_);
  const double age_s = now_s() - reference_s_;
  if (age_s > kFreshS) take_reference(error_s_ + kDrift * age_s);
}

void Clock::take_reference(double better_than_s) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double before_s = now_s();
    MOE_CHECK_CUDA(cudaEventRecord(spare_, stream_));
    spin_until_reached(spare_);
    const double error_s = (now_s() - before_s) / 2;
    if (error_s < better_than_s) {
      better_than_s = error_s_ = error_s;
      reference_s_ = before_s + error_s;
      std::swap(reference_, spare_);
    }
    if (better_than_s <= kGoodEnoughS || error_s > kBlockedS) return;
  }
}

double Clock::seconds(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  float milliseconds = 0;
  MOE_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, reference_, event));
  return reference_s_ + 1e-3 * static_cast<double>(milliseconds);
}

double Clock::error_s() {
  const std::lock_guard lock(mutex_);
  return error_s_;
}

}  // namespace moe::cuda
