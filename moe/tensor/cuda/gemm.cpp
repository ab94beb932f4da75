// cuBLASLt is column-major, so it reads a row-major matrix as the transpose. out = a b is computed as out^T = b^T a^T.
#include "moe/tensor/cuda/gemm.h"

#include <algorithm>
#include <cublasLt.h>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "moe/device/cuda/check.h"
#include "moe/device/cuda/memory.h"
#include "moe/device/cuda/owned.h"
#include "moe/tensor/cuda/cublas_check.h"
#include "moe/tensor/cuda/fp8_gemm.h"

namespace moe::cuda {
namespace {

constexpr size_t kWorkspace = 32 << 20;  // bytes per stream
constexpr int kProposals = 8, kRuns = 3;
constexpr double kFaster = 0.97;  // another algorithm is chosen only if its time is below this share of the first one's

struct Types {
  cudaDataType_t element, factor;
  cublasComputeType_t compute;
};
Types types_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::float16:
      return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::bfloat16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    default:
      return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  }
}

void make_layout(LtLayout& layout, const Matrix& m, int64_t count, int64_t step) {
  MOE_CHECK_LT(cublasLtMatrixLayoutCreate(&layout.handle, types_of(m.dtype).element, static_cast<uint64_t>(m.cols),
                                          static_cast<uint64_t>(m.rows), m.stride));
  set_lt(layout.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set_lt(layout.handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
}

/// One product, ready to be enqueued.
struct Product {
  Product(const Matrix& a, const Matrix& b, const Matrix& out, const Batch& batch) {
    const Types types = types_of(out.dtype);
    MOE_CHECK_LT(cublasLtMatmulDescCreate(&operation.handle, types.compute, types.factor));
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_lt(operation.handle, CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    make_layout(left, b, batch.count, batch.b);
    make_layout(right, a, batch.count, batch.a);
    make_layout(result, out, batch.count, batch.out);
  }
  LtOperation operation;
  LtLayout left, right, result;
};

class CublasGemm final : public Gemm {
 public:
  explicit CublasGemm(AlgorithmChoice selection) : selection_(selection) { MOE_CHECK_LT(cublasLtCreate(&lt_.handle)); }

  void run(const Matrix& a, const Matrix& b, const Matrix& out, const GemmMode& mode, void* native) override {
    const auto& [into, batch] = mode;
    const auto stream = static_cast<cudaStream_t>(native);
    const int64_t inner = a.transposed ? a.rows : a.cols;
    if (out.rows == 0 || out.cols == 0 || batch.count == 0) return;
    if (inner == 0) return into == Into::add ? void() : clear(out, batch, stream);
    const Product product(a, b, out, batch);
    const Call call{product, a, b, out, into, batch, stream, workspace(stream)};
    multiply(call, out.data, algorithm(call));
  }

  bool run_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, void* native) override {
    const auto stream = static_cast<cudaStream_t>(native);
    return fp8_.run(a, b, out, into, {lt_.handle, stream, workspace(stream), kWorkspace});
  }

 private:
  using Shape = std::vector<int64_t>;
  struct Call {
    const Product& product;
    const Matrix &a, &b, &out;
    Into into;
    const Batch& batch;
    cudaStream_t stream;
    void* workspace;
  };

  static Shape shape_of(const Call& c) {
    Shape shape{static_cast<int64_t>(c.out.dtype),
                c.into == Into::add,
                c.batch.fastest,
                c.batch.count,
                c.batch.a,
                c.batch.b,
                c.batch.out};
    for (const Matrix* m : {&c.a, &c.b, &c.out})
      shape.insert(shape.end(), {m->rows, m->cols, m->stride, m->transposed, alignment_of(m->data)});
    return shape;
  }

  static void clear(const Matrix& out, const Batch& batch, cudaStream_t stream) {
    const auto element = static_cast<size_t>(bytes_of(out.dtype));
    for (int64_t i = 0; i < batch.count; ++i)
      MOE_CHECK_CUDA(cudaMemset2DAsync(static_cast<std::byte*>(out.data) + static_cast<size_t>(i * batch.out) * element,
                                       static_cast<size_t>(out.stride) * element, 0,
                                       static_cast<size_t>(out.cols) * element, static_cast<size_t>(out.rows), stream));
  }

  void* workspace(cudaStream_t stream) {
    const auto found = workspaces_.find(stream);
    if (found != workspaces_.end()) return found->second.data();
    Memory made = try_allocate(kWorkspace);
    require<BadInput>(made.data() != nullptr, "cuBLASLt's workspace of {} bytes a stream: the GPU has no more memory",
                      kWorkspace);
    return workspaces_.emplace(stream, std::move(made)).first->second.data();
  }

  void multiply(const Call& c, void* out, const cublasLtMatmulAlgo_t& algorithm) const {
    const double one64 = 1, beta64 = c.into == Into::add ? 1 : 0;
    const float one32 = 1, beta32 = static_cast<float>(beta64);
    const bool wide = c.out.dtype == DType::float64;
    const Product& p = c.product;
    MOE_CHECK_LT(cublasLtMatmul(lt_.handle, p.operation.handle, wide ? static_cast<const void*>(&one64) : &one32,
                                c.b.data, p.left.handle, c.a.data, p.right.handle,
                                wide ? static_cast<const void*>(&beta64) : &beta32, out, p.result.handle, out,
                                p.result.handle, &algorithm, c.workspace, kWorkspace, c.stream));
  }

  const cublasLtMatmulAlgo_t& algorithm(const Call& c) {
    Shape shape = shape_of(c);
    const auto found = chosen_.find(shape);
    if (found != chosen_.end()) return found->second;
    const bool timed =
        selection_ == AlgorithmChoice::timed || (selection_ == AlgorithmChoice::by_batch && c.batch.fastest);
    return chosen_.emplace(shape, timed ? fastest(c, shape) : propose(c).front().algo).first->second;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> propose(const Call& c) const {
    LtPreference preference;
    MOE_CHECK_LT(cublasLtMatmulPreferenceCreate(&preference.handle));
    const auto prefer = [&](auto which, const auto& value) { set_lt(preference.handle, which, value); };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    // Other reduction schemes store partial sums in the output's type and don't guarantee their order.
    const bool strict = selection_ != AlgorithmChoice::timed || bytes_of(c.out.dtype) < 4;
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{strict ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(c.b.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(c.a.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c.out.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(c.out.data));
    std::vector<cublasLtMatmulHeuristicResult_t> proposals(kProposals);
    int found = 0;
    const Product& p = c.product;
    MOE_CHECK_LT(cublasLtMatmulAlgoGetHeuristic(lt_.handle, p.operation.handle, p.left.handle, p.right.handle,
                                                p.result.handle, p.result.handle, preference.handle, kProposals,
                                                proposals.data(), &found));
    proposals.resize(found);
    require<RankFailure>(found > 0, "cuBLASLt has no algorithm for a product into ({}, {}) of {}", c.out.rows,
                         c.out.cols, name_of(c.out.dtype));
    return proposals;
  }

  // The fastest algorithm of each GPU and shape. All ranks and layers in this process share it, so each shape is timed
  // once and all of them use the same algorithm.
  struct Timed {
    std::mutex mutex;
    std::map<std::pair<int, Shape>, cublasLtMatmulAlgo_t> chosen;
  };
  static Timed& timed_here() {
    static Timed timed;
    return timed;
  }

  cublasLtMatmulAlgo_t fastest(const Call& c, const Shape& shape) const {
    int gpu = 0;
    MOE_CHECK_CUDA(cudaGetDevice(&gpu));
    Timed& timed = timed_here();
    const std::lock_guard lock(timed.mutex);
    const auto found = timed.chosen.find({gpu, shape});
    if (found != timed.chosen.end()) return found->second;
    const auto proposals = propose(c);
    const cublasLtMatmulAlgo_t best = proposals[race(c, proposals)].algo;
    timed.chosen.emplace(std::pair(gpu, shape), best);
    return best;
  }

  // Returns the index of the fastest proposal. Timed runs write to a scratch output, because a call may add to its own.
  size_t race(const Call& c, const std::vector<cublasLtMatmulHeuristicResult_t>& proposals) const {
    const int64_t elements = (c.batch.count - 1) * c.batch.out + (c.out.rows - 1) * c.out.stride + c.out.cols;
    const Memory scratch = try_allocate(elements * bytes_of(c.out.dtype));
    if (scratch.data() == nullptr) return 0;
    Owned<cudaEvent_t, cudaEventDestroy> begin, end;
    MOE_CHECK_CUDA(cudaEventCreate(&begin.handle));
    MOE_CHECK_CUDA(cudaEventCreate(&end.handle));
    size_t best = 0;
    double least = 0;
    for (size_t i = 0; i < proposals.size(); ++i) {
      multiply(c, scratch.data(), proposals[i].algo);
      MOE_CHECK_CUDA(cudaEventRecord(begin.handle, c.stream));
      for (int run = 0; run < kRuns; ++run) multiply(c, scratch.data(), proposals[i].algo);
      MOE_CHECK_CUDA(cudaEventRecord(end.handle, c.stream));
      MOE_CHECK_CUDA(cudaEventSynchronize(end.handle));
      float milliseconds = 0;
      MOE_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin.handle, end.handle));
      if (i == 0) least = kFaster * double{milliseconds};
      if (i > 0 && milliseconds < least) best = i, least = milliseconds;
    }
    return best;
  }

  AlgorithmChoice selection_;
  Owned<cublasLtHandle_t, cublasLtDestroy> lt_;
  std::map<cudaStream_t, Memory> workspaces_;
  std::map<Shape, cublasLtMatmulAlgo_t> chosen_;
  Fp8Gemm fp8_;
};

}  // namespace

std::unique_ptr<Gemm> make_cublas_gemm(AlgorithmChoice selection) { return std::make_unique<CublasGemm>(selection); }

}  // namespace moe::cuda
