#pragma once
// Matrix products on a GPU.
#include <memory>

#include "moe/layer/math.h"

namespace moe::cuda {

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Math::gemm, enqueued on a cudaStream_t. float32 is float32: no TF32.
  virtual void run(const Matrix& a, const Matrix& b, const Matrix& out, Into into, const Batch& batch,
                   void* stream) = 0;
};

/// By cuBLASLt, sums in float32 (of float64 in float64). Of the algorithms that it proposes for a shape, the one that
/// was fastest when the shape was first met: that call blocks.
std::unique_ptr<Gemm> make_cublas_gemm();

/// Of the GPU that is the calling thread's: a pool that keeps what it is given back.
std::unique_ptr<Memory> make_device_memory();

}  // namespace moe::cuda
