#pragma once
// Matrix products on a GPU.
#include <memory>

#include "moe/tensor/fp8.h"
#include "moe/tensor/math.h"

namespace moe::cuda {

/// The options that Math::gemm takes.
struct GemmMode {
  Into into = Into::overwrite;
  Batch batch = {};
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Runs Math::gemm, enqueued on a cudaStream_t. float32 is computed in float32: no TF32.
  virtual void run(const Matrix& a, const Matrix& b, const Matrix& out, const GemmMode& mode, void* stream) = 0;
  /// Runs Math::gemm_fp8 in the same way and returns true; false if it has no such product.
  virtual bool run_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, void* stream) {
    static_cast<void>(a), static_cast<void>(b), static_cast<void>(out), static_cast<void>(into);
    static_cast<void>(stream);
    return false;
  }
};

/// Which of cuBLASLt's proposals for a shape is used. `first`: its first. `by_batch`: the fastest if a batch asks for
/// it (Batch::fastest), else the first. `timed`: the fastest. A process times a shape once per GPU, at its first use:
/// that call blocks. Ranks that compute the same gate must get the same bits, so a gate can't depend on times.
enum class AlgorithmChoice : uint8_t { first, by_batch, timed };

/// Makes a Gemm that multiplies by cuBLASLt, with sums in float32 (of float64 in float64).
std::unique_ptr<Gemm> make_cublas_gemm(AlgorithmChoice selection = AlgorithmChoice::first);

}  // namespace moe::cuda
