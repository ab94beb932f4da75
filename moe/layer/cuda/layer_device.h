#pragma once
// Makes a layer's device of kernels, a memory and GEMMs. Includes no CUDA header: tests put emulated ones under it.
#include <memory>

#include "moe/layer/layer_device.h"
#include "moe/tensor/cuda/cuda_math.h"

namespace moe::cuda {

/// `torch_gpu`: as CudaMath takes it.
std::unique_ptr<LayerDevice> make_layer_device(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm,
                                               std::optional<int> torch_gpu = {});

/// Make the parts of a layer's device; `math` outlives them. They throw Unsupported naming the parts with kernels.
std::unique_ptr<Gate> make_gate(CudaMath& math, const PartSetup& setup);
std::unique_ptr<Order> make_order(std::string_view name, CudaMath& math, DType dtype);

}  // namespace moe::cuda
