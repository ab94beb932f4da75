#include "moe/tensor/cuda/cuda_math.h"

#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {
namespace {

Norm norm_of(const NormInput& in) {
  return {in.x.size(0), in.x.size(1), in.centred, in.epsilon, in.x.data(), in.gain.data()};
}

}  // namespace

void* CudaMath::scratch(int64_t bytes) {
  Memory& memory = scratch_[stream_];
  if (memory.bytes() < bytes) memory = memory_->allocate(bytes);
  return memory.data();
}

std::unique_ptr<AttentionHeads> CudaMath::make_heads(const HeadsShape& shape, TensorStore& kept) {
  if (torch_gpu_) return make_torch_heads(shape, TorchGpu{*torch_gpu_, [this] { return stream_; }});
  if (!heads_scratch_) heads_scratch_ = std::make_shared<HeadsScratch>();
  return make_composed_heads(*this, shape, kept, heads_scratch_);
}

void CudaMath::round_fp8(const Matrix& from, const Fp8Matrix& to, const Fp8Matrix* turned) {
  cuda::round_fp8({stream_, from.dtype}, from.data, from.stride, to, turned != nullptr ? *turned : Fp8Matrix());
}

bool CudaMath::multiply_by_fours(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) {
  Fp8Matrix all = a;
  all.rows = by_fours(a.rows);
  if (all.rows == a.rows || a.tiles || out.stride != out.cols || out.dtype == DType::float64) return false;
  void* products = scratch(all.rows * out.cols * bytes_of(out.dtype));
  const Matrix whole{products, all.rows, out.cols, out.cols, out.dtype};
  const int64_t bytes = out.rows * out.cols * bytes_of(out.dtype);
  if (into == Into::add) memory_->copy(out.data, products, bytes, stream_);  // so that a sum is rounded once
  if (!gemm_->run_fp8(all, b, whole, into, stream_)) return false;
  memory_->copy(products, out.data, bytes, stream_);
  return true;
}

void CudaMath::gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) {
  if (gemm_->run_fp8(a, b, out, into, stream_) || multiply_by_fours(a, b, out, into)) return;
  const int64_t first = a.rows * a.cols * bytes_of(out.dtype), all = first + b.rows * b.cols * bytes_of(out.dtype);
  auto* wide = static_cast<std::byte*>(scratch(all));
  cuda::widen_fp8({stream_, out.dtype}, a, wide);
  cuda::widen_fp8({stream_, out.dtype}, b, wide + first);
  gemm({wide, a.rows, a.cols, a.cols, out.dtype}, {wide + first, b.rows, b.cols, b.cols, out.dtype, true}, out, into,
       {});
}

void CudaMath::gelu(TensorView x, TensorView out) {
  cuda::gelu({stream_, x.dtype()}, x.data(), out.data(), x.elements());
}

void CudaMath::gelu_backward(TensorView x, TensorView d_out, TensorView d_x) {
  cuda::gelu_backward({stream_, x.dtype()}, x.data(), d_out.data(), d_x.data(), x.elements());
}

void CudaMath::gelu_tanh(TensorView x, TensorView out) {
  cuda::gelu_tanh({stream_, x.dtype()}, x.data(), out.data(), x.elements());
}

void CudaMath::gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x) {
  cuda::gelu_tanh_backward({stream_, x.dtype()}, x.data(), d_out.data(), d_x.data(), x.elements());
}

void CudaMath::swiglu(TensorView a, TensorView b, TensorView out) {
  cuda::swiglu({stream_, a.dtype()}, {a.data(), b.data(), nullptr, out.data(), nullptr}, a.elements());
}

void CudaMath::swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) {
  cuda::swiglu_backward({stream_, a.dtype()}, {a.data(), b.data(), d_out.data(), d_a.data(), d_b.data()}, a.elements());
}

void CudaMath::rotate(TensorView rows, TensorView turns, Turn turn) {
  cuda::rotate(
      {stream_, rows.dtype()},
      {rows.data(), turns.data(), turns.size(0), turns.size(1) / 2, rows.size(1) / turns.size(1), turn == Turn::back},
      rows.elements() / 2);
}

void CudaMath::assign(TensorView from, TensorView to) {
  require_equal(from.bytes(), to.bytes(), "bytes to assign");
  memory_->copy(from.data(), to.data(), from.bytes(), stream_);
}

void CudaMath::add(TensorView from, TensorView to) {
  require_equal(from.elements(), to.elements(), "elements to add");
  cuda::add({stream_, from.dtype()}, from.data(), to.data(), from.elements());
}

void CudaMath::scale(TensorView t, double by) { cuda::scale({stream_, t.dtype()}, t.data(), by, t.elements()); }

void CudaMath::convert(TensorView from, TensorView to) {
  require_equal(from.elements(), to.elements(), "elements to convert");
  cuda::convert({stream_, from.dtype()}, from.data(), to.dtype(), to.data(), from.elements());
}

void CudaMath::norm(const NormInput& in, TensorView out) {
  cuda::norm({stream_, out.dtype()}, norm_of(in), out.data());
}

void CudaMath::norm_backward(const NormInput& in, TensorView d, TensorView d_gain) {
  cuda::norm_backward({stream_, d.dtype()}, norm_of(in), d.data(), d_gain.data(),
                      [&](int64_t bytes) { return scratch(bytes); });
}

void CudaMath::attention_softmax(TensorView scores, double by, bool causal) {
  cuda::attention_softmax({stream_, scores.dtype()}, scores.data(),
                          {scores.size(0) * scores.size(1), scores.size(1), scores.size(2), by, causal});
}

void CudaMath::attention_softmax_backward(TensorView p, TensorView d, double by, bool causal) {
  cuda::attention_softmax_backward({stream_, p.dtype()}, p.data(), d.data(),
                                   {p.size(0) * p.size(1), p.size(1), p.size(2), by, causal});
}
}  // namespace moe::cuda
