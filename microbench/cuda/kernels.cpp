#include "microbench/cuda/gpu_kernels.h"
#include "moe/device/cpu/cores.h"

namespace moe::microbench {
namespace {

constexpr int64_t kTokenBytes = 64 << 20;  // bytes of all tokens; tokens and rows exceed every L2 cache
constexpr int64_t kGateTokens = 16384;     // tokens in a batch of a real layer

}  // namespace

void gpu_kernels(const KernelSizes&, const KernelGroup& group) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return;
  const cpu::ThreadCountScope threads(cpu::usable_core_count());  // the host draws and checks data in parallel
  const auto device = make_cuda_layer_device();
  const Stopwatch watch(device->math().memory());
  device->math().use(watch.stream());
  KernelSizes sizes{.model_dim = 2048, .hidden = 8192, .expert_rows = 2048};
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    sizes.dtype = dtype;
    for (const int64_t width : sizes.order_widths) {
      sizes.tokens = kTokenBytes / (width * bytes_of(dtype));
      gpu_order_kernels(sizes, width, *device, watch, group);
    }
    gpu_dense_kernels(dtype, *device, watch, group);
    for (const Ffn ffn : {Ffn::gpt, Ffn::mixtral, Ffn::mixtral_fp8})
      if (!in_fp8(ffn) || bytes_of(dtype) == 2) gpu_expert_kernels(sizes, ffn, *device, watch, group);
  }
  sizes.tokens = kGateTokens;
  for (const int64_t experts : {64, 256}) {
    sizes.experts = experts;
    gpu_gate_kernels(sizes, *device, watch, group);
  }
}

}  // namespace moe::microbench
