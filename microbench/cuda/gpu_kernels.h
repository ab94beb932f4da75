#pragma once
// The GPU's kernels on one stream.
#include "microbench/cuda/stopwatch.h"
#include "microbench/kernels.h"
#include "moe/layer/layer_device.h"

namespace moe::microbench {

/// Pass kernels to `group`: gpu_order_kernels the orders of width `width` and type `sizes.dtype`; gpu_dense_kernels
/// activations, norms, attention's softmax and a sum of type `dtype`; gpu_expert_kernels the experts of kind `ffn`;
/// gpu_gate_kernels all kernels of gates except the GEMMs.
void gpu_order_kernels(const KernelSizes& sizes, int64_t width, LayerDevice& device, const Stopwatch& watch,
                       const KernelGroup& group);
void gpu_dense_kernels(DType dtype, LayerDevice& device, const Stopwatch& watch, const KernelGroup& group);
void gpu_expert_kernels(const KernelSizes& sizes, Ffn ffn, LayerDevice& device, const Stopwatch& watch,
                        const KernelGroup& group);
void gpu_gate_kernels(const KernelSizes& sizes, LayerDevice& device, const Stopwatch& watch, const KernelGroup& group);

}  // namespace moe::microbench
