#pragma once
// Reads what results of a GPU depend on, and how much memory it has left.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moe {

/// Returns for records, of GPU `index` modulo gpu_count(): gpu (its name), gpu_uuid (16 hexadecimal digits that tell it
/// from every other), cuda_driver and cuda_runtime (versions of CUDA), cublas (of the library that is loaded). Returns
/// nothing where there is no GPU.
std::vector<std::pair<std::string, std::string>> gpu_settings(int index);

/// Returns the value of one of them; empty where it is not there.
std::string gpu_setting(int index, const std::string& name);

/// Returns the bytes of a GPU's memory that nobody has now; 0 where there is no GPU.
int64_t free_gpu_bytes(int index);

}  // namespace moe
