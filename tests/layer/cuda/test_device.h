#pragma once
// A device for tests of the layer's kernels. Two make one: the emulation (emulated_device.cpp), which needs no GPU, and
// a GPU with the memory that layers have (gpu_device.cpp). Tests read and write either by copies (device_values.h).
#include <optional>

#include "moe/device/stream.h"
#include "moe/layer/cuda/layer_device.h"

namespace moe {

/// Emulated: reading or writing outside an allocation ends the process; before it and more than 15 bytes behind it at
/// once, in those bytes when it is released.
std::unique_ptr<MemorySpace> make_test_memory();
/// Emulated: every other one that is made has threads run in the opposite order, of all from then on, so that a missing
/// barrier shows.
std::unique_ptr<cuda::CudaMath> make_test_math();
std::unique_ptr<LayerDevice> make_test_layer_device();
/// Makes the streams on which such layers run.
std::unique_ptr<Device> make_test_device();
/// Returns the GPU's number; none: the device is emulated on the CPU.
std::optional<int> test_gpu();
/// Waits until what was queued on the default stream and all others is done.
void finish_test_device();
/// Returns how many kernels this process launched; 0 where nobody counts.
int64_t test_launches();

/// Makes what multiplies on the device: loops of the emulation, cuBLASLt on a GPU.
std::unique_ptr<cuda::Gemm> make_test_gemm(cuda::AlgorithmChoice selection);
/// Returns whether Gemm multiplies FP8 numbers with scales of blocks: cuBLASLt does on Hopper, from 12.9 on.
bool has_fp8_products();
/// Makes a Gemm of loops over the host's memory.
std::unique_ptr<cuda::Gemm> make_plain_gemm();

}  // namespace moe
