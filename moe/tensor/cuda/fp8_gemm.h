#pragma once
// Products of FP8 numbers with block scales by cuBLASLt, on the GPUs that have them (Hopper's, from CUDA 12.9 on).
#include <cublasLt.h>
#include <map>
#include <optional>
#include <vector>

#include "moe/tensor/cuda/gemm.h"

namespace moe::cuda {

class Fp8Gemm {
 public:
  /// The handle and stream of a product.
  struct Place {
    cublasLtHandle_t lt;
    cudaStream_t stream;
    void* workspace;
    size_t workspace_bytes;
  };
  /// Runs the product as Gemm::run_fp8 does.
  bool run(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, const Place& place);

 private:
  // cuBLASLt's proposal for a shape; none: it has no such product.
  std::map<std::vector<int64_t>, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

}  // namespace moe::cuda
