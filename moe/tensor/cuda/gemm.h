#pragma once
// Matrix products on a GPU.
#include <memory>

#include "moe/tensor/fp8.h"
#include "moe/tensor/math.h"

namespace moe::cuda {

/// The options of Math::gemm.
struct GemmMode {
  Into into = Into::overwrite;
  Batch batch = {};
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Enqueues Math::gemm on `stream`, a cudaStream_t. Products of float32 matrices do not use TF32.
  virtual void run(const Matrix& a, const Matrix& b, const Matrix& out, const GemmMode& mode, void* stream) = 0;
  /// Enqueues Math::gemm_fp8 on `stream` and returns true, or returns false if this product is not supported.
  virtual bool run_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, void* stream) {
    static_cast<void>(a), static_cast<void>(b), static_cast<void>(out), static_cast<void>(into);
    static_cast<void>(stream);
    return false;
  }
};

/// The rule that selects one of the algorithms that cuBLASLt proposes for a shape. `first`: the first proposal.
/// `timed`: the fastest one. `by_batch`: the fastest one for calls with Batch::fastest, else the first. A process times
/// a shape once per GPU, in its first call, which blocks. Ranks that compute the same gate must get the same bits, so
/// the algorithm of a gate must not depend on times.
enum class AlgorithmChoice : uint8_t { first, by_batch, timed };

/// Makes a Gemm that uses cuBLASLt. Sums are in float32, or in float64 for float64 matrices.
std::unique_ptr<Gemm> make_cublas_gemm(AlgorithmChoice selection = AlgorithmChoice::first);

}  // namespace moe::cuda
