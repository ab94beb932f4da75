#pragma once
// FP8 numbers on the CPU, which has no FP8 products: the numbers are converted to the output's type and multiplied.
#include "moe/tensor/fp8.h"
#include "moe/tensor/math.h"

namespace moe {

/// These implement the functions of Math with the same names, except that `from` may be transposed.
void round_fp8(const Matrix& from, const Fp8Matrix& to);
void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into);

}  // namespace moe
