#pragma once
// Products of FP8 matrices with block scales by cuBLASLt, which supports them on Hopper GPUs since CUDA 12.9.
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
  /// Implements Gemm::run_fp8.
  bool run(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, const Place& place);

 private:
  // The algorithm that cuBLASLt proposed for each shape, or none if it does not support the shape.
  std::map<std::vector<int64_t>, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

}  // namespace moe::cuda
