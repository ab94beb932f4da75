#pragma once
// Math on a GPU, made of kernels (kernels.h), a memory and GEMMs. Includes no CUDA header, so that tests can link it
// with kernels and GEMMs that are emulated on the CPU.
#include <map>
#include <memory>
#include <mutex>

#include "moe/tensor/attention_heads.h"
#include "moe/tensor/cuda/gemm.h"

namespace moe::cuda {

/// Math whose kernels are enqueued on the stream of the last use().
class CudaMath final : public Math {
 public:
  /// `torch_gpu`: the GPU on which LibTorch computes attention (make_torch_heads()); if none, this class's kernels do.
  CudaMath(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm, std::optional<int> torch_gpu = {})
      : memory_(std::move(memory)), gemm_(std::move(gemm)), torch_gpu_(torch_gpu) {}

  void* stream() const { return stream_; }

  MemorySpace& memory() override { return *memory_; }
  void use(void* native) override {
    if (native != stream_) stream_ = native;
  }
  void gemm(const Matrix& a, const Matrix& b, const Matrix& out, Into into, const Batch& batch) override {
    gemm_->run(a, b, out, {into, batch}, stream_);
  }
  bool batches() const override { return true; }
  void round_fp8(const Matrix& from, const Fp8Matrix& to, const Fp8Matrix* turned) override;
  void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) override;
  std::unique_ptr<AttentionHeads> make_heads(const HeadsShape& shape, TensorStore& kept) override;
  void gelu(TensorView x, TensorView out) override;
  void gelu_backward(TensorView x, TensorView d_out, TensorView d_x) override;
  void gelu_tanh(TensorView x, TensorView out) override;
  void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x) override;
  void swiglu(TensorView a, TensorView b, TensorView out) override;
  void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) override;
  void rotate(TensorView rows, int64_t head, TensorView turns, RotationDirection turn) override;
  void assign(TensorView from, TensorView to) override;
  void add(TensorView from, TensorView to) override;
  void scale(TensorView t, double by) override;
  void convert(TensorView from, TensorView to) override;
  void norm(const NormInput& in, TensorView out) override;
  void norm_backward(const NormInput& in, TensorView d, TensorView d_gain) override;
  void attention_softmax(TensorView scores, double scale, AttentionMask mask) override;
  void attention_softmax_backward(TensorView p, TensorView d, double scale, AttentionMask mask) override;
  void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into) override;
  void add_to_rows(TensorView d, const TokenRows& rows, TensorView table) override;
  void softmax_sums(TensorView logits, const Targets& targets, TensorView sums) override;
  void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part,
                              double counted) override;
  void add_squares(TensorView t, int copies, double* sum) override;
  void step(const WeightStep& step) override;

 private:
  void* scratch(int64_t bytes);
  /// Computes gemm_fp8() with a's rows padded to a multiple of 4, which cuBLASLt requires. Returns false, with `out`
  /// unchanged, if that product is not supported either.
  bool gemm_padded_to_4(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into);

  std::unique_ptr<MemorySpace> memory_;
  std::unique_ptr<Gemm> gemm_;
  std::optional<int> torch_gpu_;
  std::shared_ptr<HeadsScratch> heads_scratch_;
  std::mutex scratches_;
  std::map<const void*, Memory> scratch_;  // scratch memory, by stream
  void* stream_ = nullptr;
};

}  // namespace moe::cuda
