#pragma once
// FP8 numbers on the CPU, which has no products of them: their values are multiplied.
#include "moe/tensor/fp8.h"
#include "moe/tensor/math.h"

namespace moe {

/// Do what Math's functions do; `from` may be transposed.
void round_fp8(const Matrix& from, const Fp8Matrix& to);
void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into);

}  // namespace moe
