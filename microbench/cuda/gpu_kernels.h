#pragma once
// The GPU's kernels on one stream.
#include "microbench/cuda/stopwatch.h"
#include "microbench/kernels.h"
#include "moe/layer/layer_device.h"

namespace moe::microbench {

/// Pass kernels to `group`: the orders of one width and of the sizes' type; activations, norms, attention's softmax and
/// a sum of one type; experts of one kind; the kernels of gates between their GEMMs, for the sizes' tokens and experts.
void gpu_order_kernels(const KernelSizes& sizes, int64_t width, LayerDevice& device, const Stopwatch& watch,
                       const KernelGroup& group);
void gpu_dense_kernels(DType dtype, LayerDevice& device, const Stopwatch& watch, const KernelGroup& group);
void gpu_expert_kernels(const KernelSizes& sizes, Ffn ffn, LayerDevice& device, const Stopwatch& watch,
                        const KernelGroup& group);
void gpu_gate_kernels(const KernelSizes& sizes, LayerDevice& device, const Stopwatch& watch, const KernelGroup& group);

}  // namespace moe::microbench
