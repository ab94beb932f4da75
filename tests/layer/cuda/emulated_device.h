#pragma once
// A GPU for layers, on the CPU: guarded memory, plain GEMMs, and the product's kernels under the emulation.
#include "moe/layer/cuda/layer_device.h"

namespace moe {

/// Reading or writing outside an allocation ends the process: before it and 0 to 15 bytes behind it at once, in those
/// bytes when it is released.
std::unique_ptr<MemorySpace> make_guarded_memory();
std::unique_ptr<cuda::Gemm> make_plain_gemm();

std::unique_ptr<cuda::CudaMath> make_emulated_math();
std::unique_ptr<LayerDevice> make_emulated_layer_device();

}  // namespace moe
