#pragma once
// `microbench --kernels`: how fast the layer's own kernels are on one thread, and on the GPU where there is one,
// beside what bounds them.

namespace moe {

struct KernelBenchOptions {
  int repetitions = 5;  // the fastest counts: other processes only ever slow a kernel down
  bool json = false;
};

/// Orders beside memcpy of as many bytes, gates beside the experts' time, experts beside their GEMMs alone.
int run_kernel_bench(const KernelBenchOptions& options);

}  // namespace moe
