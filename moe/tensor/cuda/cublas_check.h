#pragma once
// Checks calls of cuBLASLt and describes matrices to it.
#include <algorithm>
#include <bit>
#include <cublasLt.h>

#include "moe/base/check.h"
#include "moe/device/cuda/owned.h"

namespace moe::cuda {

inline void check_lt(cublasStatus_t status, const char* call) {
  require<RankFailure>(status == CUBLAS_STATUS_SUCCESS, "{}: cuBLAS says {}", call, cublasLtGetStatusString(status));
}
#define MOE_CHECK_LT(call) ::moe::cuda::check_lt((call), #call)

using LtOperation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// Returns the alignment of an address in bytes, a power of two of at most 256.
inline uint32_t alignment_of(const void* data) {
  return 1U << std::min(8, std::countr_zero(reinterpret_cast<uintptr_t>(data) | 256));
}

template <class Value>
void set_lt(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, const Value& value) {
  MOE_CHECK_LT(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value));
}
template <class Value>
void set_lt(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, const Value& value) {
  MOE_CHECK_LT(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value));
}
template <class Value>
void set_lt(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const Value& value) {
  MOE_CHECK_LT(cublasLtMatrixLayoutSetAttribute(layout, which, &value, sizeof value));
}

}  // namespace moe::cuda
