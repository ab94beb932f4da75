#include "moe/device/gpu_settings.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/device/cuda/check.h"
#include "moe/device/device.h"

namespace moe {
namespace {

std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version / 10 % 100); }

/// Returns cuBLASLt's version as text: "13.1.0" for 130100.
std::string cublas_version() {
  const auto version = reinterpret_cast<size_t (*)()>(dlsym(RTLD_DEFAULT, "cublasLtGetVersion"));
  if (version == nullptr) return {};
  const size_t number = version();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> gpu_settings(int index) {
  const int gpus = gpu_count();
  if (gpus == 0) return {};
  cudaDeviceProp properties;
  MOE_CHECK_CUDA(cudaGetDeviceProperties(&properties, index % gpus));
  int driver = 0, runtime = 0;
  MOE_CHECK_CUDA(cudaDriverGetVersion(&driver));
  MOE_CHECK_CUDA(cudaRuntimeGetVersion(&runtime));
  const std::string uuid(properties.uuid.bytes, sizeof properties.uuid.bytes);
  std::vector<std::pair<std::string, std::string>> settings{
      {"gpu", properties.name},
      {"gpu_uuid", fmt::format("{:016x}", random_stream_id(uuid))},
      {"cuda_driver", cuda_version(driver)},
      {"cuda_runtime", cuda_version(runtime)}};
  if (const std::string cublas = cublas_version(); !cublas.empty()) settings.emplace_back("cublas", cublas);
  return settings;
}

std::string gpu_setting(int index, const std::string& name) {
  for (const auto& [known, value] : gpu_settings(index))
    if (known == name) return value;
  return {};
}

int64_t free_gpu_bytes(int index) {
  const int gpus = gpu_count();
  if (gpus == 0) return 0;
  MOE_CHECK_CUDA(cudaSetDevice(index % gpus));
  size_t left = 0, all = 0;
  MOE_CHECK_CUDA(cudaMemGetInfo(&left, &all));
  return static_cast<int64_t>(left);
}

}  // namespace moe
