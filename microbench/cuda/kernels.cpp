#include "microbench/cuda/gpu_kernels.h"

namespace moe::microbench {

void gpu_kernels(const KernelSizes&, const KernelGroup& group) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return;
  const Stopwatch watch;
  const auto device = make_cuda_layer_device();
  device->math().use(watch.stream());
  KernelSizes sizes{.tokens = 16384, .model_dim = 2048, .hidden = 8192, .expert_rows = 2048};
  for (const int64_t width : sizes.order_widths)
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      sizes.dtype = dtype;
      gpu_order_kernels(sizes, width, *device, watch, group);
    }
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    sizes.dtype = dtype;
    for (const Ffn ffn : {Ffn::gpt, Ffn::mixtral}) gpu_expert_kernels(sizes, ffn, *device, watch, group);
  }
}

}  // namespace moe::microbench
