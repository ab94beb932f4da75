// Math on the CPU.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "moe/tensor/attention_heads.h"
#include "moe/tensor/cpu/fp8.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

// One row of a norm's input, with its mean (0 if the norm is not centred) and the factor that scales it.
template <class T>
struct NormRow {
  NormRow(const T* row, const T* gains, const NormInput& in) : x(row), gain(gains), width(in.x.size(1)) {
    if (in.centred) mean = mean_of([&](int64_t j) { return x[j]; });
    const T variance = mean_of([&](int64_t j) { return (x[j] - mean) * (x[j] - mean); });
    scale = T(1) / std::sqrt(variance + static_cast<T>(in.epsilon));
  }
  T normed(int64_t j) const { return (x[j] - mean) * scale; }
  template <class Term>
  T mean_of(Term term) const {
    return sum_of<T>(width, term) / static_cast<T>(width);
  }

  const T *x, *gain;
  int64_t width;
  T mean = 0, scale = 0;
};

template <class T>
void norm_rows(const NormInput& in, T* out) {
  const int64_t width = in.x.size(1);
  parallel_for(in.x.size(0), width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const NormRow<T> row(in.x.as<T>() + i * width, in.gain.as<T>(), in);
      for (int64_t j = 0; j < width; ++j) out[i * width + j] = row.gain[j] * row.normed(j);
    }
  });
}

// Replaces d_out by d_x in rows [begin, end) of d, and adds their contribution to d_gain. With h = (x - mean) scale and
// u = gain d_out, d_x = scale (u - h mean(u h) - mean(u)), where only LayerNorm has the term mean(u).
template <class T>
void norm_rows_backward(const NormInput& in, int64_t begin, int64_t end, T* d, T* d_gain) {
  const int64_t width = in.x.size(1);
  d += begin * width;
  for (int64_t i = begin; i < end; ++i, d += width) {
    const NormRow<T> row(in.x.as<T>() + i * width, in.gain.as<T>(), in);
    const auto u = [&](int64_t j) { return row.gain[j] * d[j]; };
    const T along = row.mean_of([&](int64_t j) { return u(j) * row.normed(j); });
    const T common = in.centred ? row.mean_of(u) : T(0);
    for (int64_t j = 0; j < width; ++j) d_gain[j] += d[j] * row.normed(j);
    for (int64_t j = 0; j < width; ++j) d[j] = row.scale * (u(j) - row.normed(j) * along - common);
  }
}

// Sums the gain's gradient by blocks of rows, which do not depend on the number of threads, so neither do its bits.
template <class T>
void norm_rows_backward(const NormInput& in, T* d, T* d_gain) {
  constexpr int64_t kBlock = 64;
  const int64_t rows = in.x.size(0), width = in.x.size(1), blocks = (rows + kBlock - 1) / kBlock;
  std::vector<T> parts(blocks * width);
  parallel_for(blocks, kBlock * width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      norm_rows_backward(in, block * kBlock, std::min(rows, (block + 1) * kBlock), d, parts.data() + block * width);
  });
  std::fill_n(d_gain, width, T(0));
  for (auto part = parts.begin(); part != parts.end(); part += width)
    for (int64_t j = 0; j < width; ++j) d_gain[j] += part[j];
}

template <class T>
void rotate_head(T* __restrict low, T* __restrict high, const T* __restrict turns, int64_t half, T sign) {
  for (int64_t j = 0; j < half; ++j) {
    const T a = low[j], b = high[j], cosine = turns[j], sine = sign * turns[half + j];
    low[j] = a * cosine - b * sine;
    high[j] = b * cosine + a * sine;
  }
}

template <class T>
void rotate_rows(TensorView rows, int64_t head_width, TensorView turns, T sign) {
  const int64_t width = rows.size(1), d = turns.size(1);
  parallel_for(rows.size(0), width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* angles = turns.as<T>() + i % turns.size(0) * d;
      for (int64_t behind = head_width; behind <= width; behind += head_width) {
        T* low = rows.as<T>() + i * width + behind - d;
        rotate_head(low, low + d / 2, angles, d / 2, sign);
      }
    }
  });
}

// Returns the range [first, end) of the columns that row r sees; rows are counted over all matrices (rows, L).
std::pair<int64_t, int64_t> visible_range(int64_t r, int64_t rows, int64_t seq, AttentionMask mask) {
  const int64_t end = mask.causal ? seq - rows + r % rows + 1 : seq;
  return {mask.window > 0 ? std::max<int64_t>(0, end - mask.window) : 0, end};
}

template <class T>
void attention_softmax_rows(TensorView scores, T scale, AttentionMask mask) {
  const int64_t rows = scores.size(1), seq = scores.size(2);
  T* row = scores.as<T>();
  for (int64_t r = 0; r < scores.size(0) * rows; ++r, row += seq) {
    const auto [begin, end] = visible_range(r, rows, seq, mask);
    const T top = *std::max_element(row + begin, row + end);
    T sum = 0;
    for (int64_t j = begin; j < end; ++j) sum += row[j] = std::exp(scale * (row[j] - top));
    for (int64_t j = begin; j < end; ++j) row[j] /= sum;
    std::fill(row, row + begin, T(0));
    std::fill(row + end, row + seq, T(0));
  }
}

template <class T>
void attention_softmax_rows_backward(TensorView shares, TensorView gradients, T scale, AttentionMask mask) {
  const int64_t rows = shares.size(1), seq = shares.size(2);
  const T* p = shares.as<T>();
  T* d = gradients.as<T>();
  for (int64_t r = 0; r < shares.size(0) * rows; ++r, p += seq, d += seq) {
    T mean = 0;
    const auto [begin, end] = visible_range(r, rows, seq, mask);
    for (int64_t j = begin; j < end; ++j) mean += p[j] * d[j];
    for (int64_t j = 0; j < seq; ++j) d[j] = scale * p[j] * (d[j] - mean);
  }
}

// Attention for shapes that LibTorch's kernel does not support. Each call makes new heads, so no memory is kept.
class LazyComposedHeads final : public AttentionHeads {
 public:
  LazyComposedHeads(Math& math, const HeadsShape& shape) : math_(math), shape_(shape) { shape_.recompute = true; }
  void forward(const HeadInputs& in, TensorView out) override { made()->forward(in, out); }
  void backward(const HeadInputs& in, TensorView out, TensorView d_out, const HeadInputs& d) override {
    made()->backward(in, out, d_out, d);
  }

 private:
  std::unique_ptr<AttentionHeads> made() {
    TensorStore none;  // stays empty, because recomputed scores are not kept
    return make_composed_heads(math_, shape_, none);
  }

  Math& math_;
  HeadsShape shape_;
};

class CpuMath final : public Math {
 public:
  MemorySpace& memory() override { return cpu_memory(); }
  void use(void*) override {}
  std::unique_ptr<AttentionHeads> make_heads(const HeadsShape& shape, TensorStore&) override {
    if (shape.is_plain()) return make_flash_heads(shape);
    return std::make_unique<LazyComposedHeads>(*this, shape);
  }
  void gemm(const Matrix& a, const Matrix& b, const Matrix& out, Into into, const Batch& batch) override {
    moe::gemm(a, b, out, into, batch);
  }
  bool batches() const override { return batches_products(); }
  void round_fp8(const Matrix& from, const Fp8Matrix& to, const Fp8Matrix* turned) override {
    moe::round_fp8(from, to);
    if (turned != nullptr) moe::round_fp8(transpose(from), *turned);
  }
  void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) override {
    moe::gemm_fp8(a, b, out, into);
  }
  void gelu(TensorView x, TensorView out) override { moe::gelu(x, out); }
  void gelu_backward(TensorView x, TensorView d_out, TensorView d_x) override { moe::gelu_backward(x, d_out, d_x); }
  void gelu_tanh(TensorView x, TensorView out) override { moe::gelu_tanh(x, out); }
  void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x) override {
    moe::gelu_tanh_backward(x, d_out, d_x);
  }
  void swiglu(TensorView a, TensorView b, TensorView out) override { moe::swiglu(a, b, out); }
  void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) override {
    moe::swiglu_backward(a, b, d_out, d_a, d_b);
  }
  void assign(TensorView from, TensorView to) override { moe::assign(from, to); }
  void add(TensorView from, TensorView to) override { moe::add(from, to); }
  void scale(TensorView t, double by) override { moe::scale(t, by); }
  void convert(TensorView from, TensorView to) override { moe::convert(from, to); }

  void norm(const NormInput& in, TensorView out) override {
    with_element(out.dtype(), [&](auto zero) { norm_rows(in, out.as<decltype(zero)>()); });
  }
  void norm_backward(const NormInput& in, TensorView d, TensorView d_gain) override {
    with_element(d.dtype(), [&](auto zero) {
      using T = decltype(zero);
      norm_rows_backward(in, d.as<T>(), d_gain.as<T>());
    });
  }
  void rotate(TensorView rows, int64_t head, TensorView turns, RotationDirection turn) override {
    with_element(rows.dtype(), [&](auto zero) {
      using T = decltype(zero);
      rotate_rows(rows, head, turns, turn == RotationDirection::forward ? T(1) : T(-1));
    });
  }
  void attention_softmax(TensorView scores, double by, AttentionMask mask) override {
    with_element(scores.dtype(), [&](auto zero) {
      using T = decltype(zero);
      attention_softmax_rows(scores, static_cast<T>(by), mask);
    });
  }
  void attention_softmax_backward(TensorView p, TensorView d, double by, AttentionMask mask) override {
    with_element(p.dtype(), [&](auto zero) {
      using T = decltype(zero);
      attention_softmax_rows_backward(p, d, static_cast<T>(by), mask);
    });
  }

  void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into) override {
    moe::look_up(table, rows, out, into);
  }
  void add_to_rows(TensorView d, const TokenRows& rows, TensorView table) override { moe::add_to_rows(d, rows, table); }
  void softmax_sums(TensorView logits, const Targets& targets, TensorView sums) override {
    moe::softmax_sums(logits, targets, sums);
  }
  void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part,
                              double counted) override {
    moe::cross_entropy_backward(logits, targets, sums, part, counted);
  }
  void add_squares(TensorView t, int copies, double* sum) override { *sum += sum_of_squares(t) / copies; }
  void step(const WeightStep& step) override { step_weight(step); }
};

}  // namespace

Math& cpu_math() {
  static CpuMath math;
  return math;
}

}  // namespace moe
