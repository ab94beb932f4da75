// cuBLASLt is column-major, so it reads a row-major matrix as the transpose. out = a b^T is computed as out^T = b a^T:
// the first operand is b, with CUBLAS_OP_T, and the second is a, with CUBLAS_OP_N, as FP8 products require.
#include "moe/tensor/cuda/fp8_gemm.h"

#include "moe/tensor/cuda/cublas_check.h"

namespace moe::cuda {

#if CUBLAS_VERSION >= 120900

namespace {

constexpr uint32_t kAligned = 16;  // alignment in bytes of numbers, of their rows and of scales

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::float32) return CUDA_R_32F;
  return dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

// One product, ready to be enqueued.
struct Fp8Product {
  Fp8Product(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out) {
    MOE_CHECK_LT(cublasLtMatmulDescCreate(&operation.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b.scales);
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.scales);
    const auto make = [](LtLayout& layout, cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride) {
      MOE_CHECK_LT(cublasLtMatrixLayoutCreate(&layout.handle, type, static_cast<uint64_t>(cols),
                                              static_cast<uint64_t>(rows), stride));
    };
    make(left, CUDA_R_8F_E4M3, b.rows, b.cols, b.cols);
    make(right, CUDA_R_8F_E4M3, a.rows, a.cols, a.cols);
    make(result, type_of(out.dtype), out.rows, out.cols, out.stride);
  }
  LtOperation operation;
  LtLayout left, right, result;
};

std::optional<cublasLtMatmulAlgo_t> propose(const Fp8Product& p, uint32_t alignment, const Fp8Gemm::Place& place) {
  LtPreference preference;
  MOE_CHECK_LT(cublasLtMatmulPreferenceCreate(&preference.handle));
  set_lt(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, place.workspace_bytes);
  // Other reduction schemes do not guarantee the order of a sum.
  set_lt(preference.handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set_lt(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAligned);
  set_lt(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAligned);
  set_lt(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set_lt(preference.handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  cublasLtMatmulHeuristicResult_t proposal;
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(place.lt, p.operation.handle, p.left.handle, p.right.handle, p.result.handle,
                                     p.result.handle, preference.handle, 1, &proposal, &found);
  for (const auto has_none : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH})
    if (status == has_none) return std::nullopt;
  MOE_CHECK_LT(status);
  return found > 0 && proposal.state == CUBLAS_STATUS_SUCCESS ? std::optional(proposal.algo) : std::nullopt;
}

bool may_have(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out) {
  static const bool has_modes = cublasLtGetVersion() >= 120900;  // the loaded library may be older than the headers
  const auto reach = [](const void* data) { return alignment_of(data) >= kAligned; };
  return has_modes && !a.tiles && b.tiles && a.rows % 4 == 0 && b.rows % 4 == 0 && a.cols > 0 &&
         a.cols % kAligned == 0 && out.dtype != DType::float64 && reach(a.data) && reach(b.data) && reach(a.scales) &&
         reach(b.scales);
}

}  // namespace

bool Fp8Gemm::run(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, const Place& place) {
  if (!may_have(a, b, out)) return false;
  if (out.rows == 0 || out.cols == 0) return true;
  const Fp8Product product(a, b, out);
  const uint32_t alignment = alignment_of(out.data);
  const std::vector<int64_t> shape{static_cast<int64_t>(out.dtype), a.rows, a.cols, b.rows, out.stride, alignment};
  auto found = chosen_.find(shape);
  if (found == chosen_.end()) found = chosen_.emplace(shape, propose(product, alignment, place)).first;
  if (!found->second) return false;
  const float one = 1, beta = into == Into::add ? 1 : 0;
  const cublasStatus_t status =
      cublasLtMatmul(place.lt, product.operation.handle, &one, b.data, product.left.handle, a.data,
                     product.right.handle, &beta, out.data, product.result.handle, out.data, product.result.handle,
                     &*found->second, place.workspace, place.workspace_bytes, place.stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    found->second.reset();
    return false;
  }
  MOE_CHECK_LT(status);
  return true;
}

#else

bool Fp8Gemm::run(const Fp8Matrix&, const Fp8Matrix&, const Matrix&, Into, const Place&) { return false; }

#endif

}  // namespace moe::cuda
