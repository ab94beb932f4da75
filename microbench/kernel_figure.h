#pragma once
// One kernel's time beside what bounds it.
#include <cstdint>
#include <string>
#include <vector>

namespace moe {

struct KernelFigure {
  std::string kernel, of;
  int64_t width = 0;
  double seconds = 0;
  double gb_per_s = 0;  // 0: not bound by memory
  double share = 0;     // of what `of` says
};

/// Of the GPU: orders beside a copy inside its memory of as many bytes and a gather by Thrust, experts beside their
/// GEMMs by the fastest of cuBLASLt's algorithms; the fastest of `turns` turns. None in a build without CUDA, and
/// without a GPU. Throws WrongResult if a kernel is.
std::vector<KernelFigure> measure_gpu_kernels(int turns);

}  // namespace moe
