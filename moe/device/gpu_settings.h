#pragma once
// GPU settings that affect results, and a GPU's free memory.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moe {

/// Returns settings of GPU `index` modulo gpu_count(), to be stored with results: gpu (its name), gpu_uuid (16
/// hexadecimal digits, unique to the GPU), cuda_driver and cuda_runtime (versions of CUDA), cublas (version of the
/// loaded library). Returns nothing if there is no GPU.
std::vector<std::pair<std::string, std::string>> gpu_settings(int index);

/// Returns the value of one of these settings; empty if it is missing.
std::string gpu_setting(int index, const std::string& name);

/// Returns the free bytes of a GPU's memory; 0 if there is no GPU.
int64_t free_gpu_bytes(int index);

}  // namespace moe
