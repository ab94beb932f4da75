#pragma once
// A layer's device made of kernels, a memory and GEMMs. Names no CUDA header: tests put emulated ones under it.
#include <memory>

#include "moe/layer/layer_device.h"
#include "moe/tensor/cuda/cuda_math.h"

namespace moe::cuda {

std::unique_ptr<LayerDevice> make_layer_device(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm);

/// Its parts; `math` outlives them. Throw Unsupported naming what there are kernels for.
std::unique_ptr<Gate> make_gate(CudaMath& math, const PartSetup& setup);
std::unique_ptr<Order> make_order(std::string_view name, CudaMath& math, DType dtype);

}  // namespace moe::cuda
