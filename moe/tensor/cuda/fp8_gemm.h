#pragma once
// Products of FP8 numbers with block scales by cuBLASLt, which has them on some GPUs (Hopper's, from CUDA 12.9 on).
#include <cublasLt.h>
#include <map>
#include <optional>
#include <vector>

#include "moe/tensor/cuda/gemm.h"

namespace moe::cuda {

class Fp8Gemm {
 public:
  /// Where a product runs.
  struct Place {
    cublasLtHandle_t lt;
    cudaStream_t stream;
    void* workspace;
    size_t workspace_bytes;
  };
  /// Runs the product as Gemm::run_fp8 does.
  bool run(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, const Place& place);

 private:
  // What cuBLASLt proposes for a shape; none: it has nothing.
  std::map<std::vector<int64_t>, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

}  // namespace moe::cuda
