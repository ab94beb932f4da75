#include "moe/tensor/cuda/cuda_math.h"

#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {
namespace {

Norm norm_of(const NormInput& in) {
  return {in.x.size(0), in.x.size(1), in.centred, in.epsilon, in.x.data(), in.gain.data()};
}

static_assert(kLossSums == kSoftmaxSums);

LossRows loss_rows(TensorView logits, const Targets& targets) {
  return {logits.data(), logits.size(0), logits.size(1), targets.target, targets.first};
}

}  // namespace

// Streams of an emulated GPU are threads and have no native stream, so their scratch memory is found by thread.
void* CudaMath::scratch(int64_t bytes) {
  static thread_local char own_thread;
  const std::lock_guard lock(scratches_);
  Memory& memory = scratch_[stream_ != nullptr ? stream_ : &own_thread];
  if (memory.bytes() < bytes) memory = memory_->allocate(bytes);
  return memory.data();
}

std::unique_ptr<AttentionHeads> CudaMath::make_heads(const HeadsShape& shape, TensorStore& kept) {
  if (torch_gpu_ && shape.is_plain()) return make_torch_heads(shape, TorchGpu{*torch_gpu_, [this] { return stream_; }});
  if (!heads_scratch_) heads_scratch_ = std::make_shared<HeadsScratch>();
  HeadsShape own = shape;
  own.recompute =
      shape.recompute || torch_gpu_;  // no shape keeps scores if LibTorch is used (see stores_attention_scores())
  return make_composed_heads(*this, own, kept, heads_scratch_);
}

void CudaMath::round_fp8(const Matrix& from, const Fp8Matrix& to, const Fp8Matrix* turned) {
  cuda::round_fp8({stream_, from.dtype}, from.data, from.stride, to, turned != nullptr ? *turned : Fp8Matrix());
}

bool CudaMath::gemm_padded_to_4(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) {
  Fp8Matrix all = a;
  all.rows = round_up_to_4(a.rows);
  if (all.rows == a.rows || a.tiles || out.stride != out.cols || out.dtype == DType::float64) return false;
  void* products = scratch(all.rows * out.cols * bytes_of(out.dtype));
  const Matrix whole{products, all.rows, out.cols, out.cols, out.dtype};
  const int64_t bytes = out.rows * out.cols * bytes_of(out.dtype);
  if (into == Into::add) memory_->copy(out.data, products, bytes, stream_);  // so that the GEMM adds, and rounds once
  if (!gemm_->run_fp8(all, b, whole, into, stream_)) return false;
  memory_->copy(products, out.data, bytes, stream_);
  return true;
}

void CudaMath::gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) {
  if (gemm_->run_fp8(a, b, out, into, stream_) || gemm_padded_to_4(a, b, out, into)) return;
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

void CudaMath::rotate(TensorView rows, int64_t head, TensorView turns, RotationDirection turn) {
  const int64_t half = turns.size(1) / 2, heads = rows.size(1) / head;
  cuda::rotate({stream_, rows.dtype()},
               {rows.data(), turns.data(), turns.size(0), half, heads, head, turn == RotationDirection::back},
               rows.size(0) * heads * half);
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

void CudaMath::attention_softmax(TensorView scores, double by, AttentionMask mask) {
  cuda::attention_softmax(
      {stream_, scores.dtype()}, scores.data(),
      {scores.size(0) * scores.size(1), scores.size(1), scores.size(2), by, mask.causal, mask.window});
}

void CudaMath::attention_softmax_backward(TensorView p, TensorView d, double by, AttentionMask mask) {
  cuda::attention_softmax_backward({stream_, p.dtype()}, p.data(), d.data(),
                                   {p.size(0) * p.size(1), p.size(1), p.size(2), by, mask.causal, mask.window});
}

void CudaMath::look_up(TensorView table, const TokenRows& rows, TensorView out, Into into) {
  cuda::look_up({stream_, out.dtype()},
                {table.data(), rows.row, rows.tokens, table.size(1), into == Into::add, out.data()});
}

void CudaMath::add_to_rows(TensorView d, const TokenRows& rows, TensorView table) {
  cuda::add_to_rows({stream_, d.dtype()},
                    {d.data(), rows.table_row, rows.begin, rows.by_row, rows.used, table.size(1), table.data()});
}

void CudaMath::softmax_sums(TensorView logits, const Targets& targets, TensorView sums) {
  cuda::softmax_sums({stream_, logits.dtype()}, loss_rows(logits, targets), sums.as<double>());
}

// softmax_sums() left the logits unchanged, so the index of the part is not needed.
void CudaMath::cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int, double counted) {
  cuda::cross_entropy_backward({stream_, logits.dtype()}, loss_rows(logits, targets), sums.as<double>(),
                               static_cast<int>(sums.size(0)), counted);
}

void CudaMath::add_squares(TensorView t, int copies, double* sum) {
  cuda::add_squares({stream_, t.dtype()}, t.data(), t.elements(), copies, sum,
                    [&](int64_t bytes) { return scratch(bytes); });
}

void CudaMath::step(const WeightStep& step) {
  const DType dtype = step.value.dtype();
  require<WrongResult>(dtype == step.gradient.dtype(),
                       "optimizer step on a GPU: found {} weights and {} gradients, expected the same type",
                       name_of(dtype), name_of(step.gradient.dtype()));
  const ElementSelection own = explicit_selection(step.own, step.value);
  cuda::step_weight({stream_, dtype},
                    {.value = step.value.data(),
                     .gradient = step.gradient.data(),
                     .master = step.master.data(),
                     .first = step.first.data(),
                     .second = step.second.data(),
                     .count = count_of(step.own, step.value),
                     .begin = own.first,
                     .run = own.count,
                     .every = own.every,
                     .adamw = step.kind == OptimizerKind::adamw,
                     .rate = step.rate,
                     .decay = step.decay,
                     .momentum = step.momentum,
                     .beta1 = step.beta1,
                     .beta2 = step.beta2,
                     .epsilon = step.epsilon,
                     .correction1 = step.correction1,
                     .correction2 = step.correction2,
                     .scale = step.scale,
                     .squares = step.squares,
                     .max_norm = step.max_norm},
                    [&](int64_t bytes) { return scratch(bytes); });
}

}  // namespace moe::cuda
