#include "moe/layer/attention.h"

#include <algorithm>
#include <cmath>

#include "moe/layer/cpu/math.h"
#include "moe/layer/element.h"
#include "moe/layer/tensor.h"

namespace moe {
namespace {

template <class T>
class CausalAttention final : public Attention {
 public:
  explicit CausalAttention(const AttentionSetup& setup)
      : tokens_(setup.rank.mp_tokens()),
        seq_(setup.rank.shape.layer.seq),
        model_dim_(setup.rank.model_dim()),
        head_dim_(setup.rank.head_dim),
        heads_(setup.rank.heads.count),
        queries_(setup.rank.shape.layer.heads / setup.rank.shape.layer.kv_heads),
        columns_(of_heads(setup.rank.heads, head_dim_)),
        kv_columns_(of_heads(setup.rank.heads, head_dim_, queries_)),
        scale_(T(1) / std::sqrt(static_cast<T>(head_dim_))) {
    const DType dtype = setup.rank.dtype();
    wq_ = Tensor({model_dim_, columns_.count}, dtype);
    for (Tensor* t : {&wk_, &wv_}) *t = Tensor({model_dim_, kv_columns_.count}, dtype);
    wo_ = Tensor({columns_.count, model_dim_}, dtype);
    for (Tensor* t : {&q_, &mixed_, &dq_, &d_mixed_}) *t = Tensor({tokens_, columns_.count}, dtype);
    for (Tensor* t : {&k_, &v_, &dk_, &dv_}) *t = Tensor({tokens_, kv_columns_.count}, dtype);
    scores_ = Tensor({tokens_ / seq_ * heads_, seq_, seq_}, dtype);
    d_scores_ = Tensor({seq_, seq_}, dtype);
    for (const Parameter& p : parameters({})) fill_weight(p, model_dim_, setup.seed);
  }

  void forward(TensorView input, TensorView out) override {
    gemm(matrix(input), matrix(wq_), matrix(q_));
    gemm(matrix(input), matrix(wk_), matrix(k_));
    gemm(matrix(input), matrix(wv_), matrix(v_));
    for_each_head([&](int64_t sequence, int64_t head, TensorView scores) {
      const int64_t kv = head / queries_;
      gemm(of(q_, sequence, head), transpose(of(k_, sequence, kv)), matrix(scores));
      softmax(scores.as<T>());
      gemm(matrix(scores), of(v_, sequence, kv), of(mixed_, sequence, head));
    });
    gemm(matrix(mixed_), matrix(wo_), matrix(out));
  }

  void backward(TensorView input, TensorView d_out, TensorView d_input, TensorView gradients) override {
    const auto weights = parameters(gradients);
    gemm(transpose(matrix(mixed_)), matrix(d_out), plane(weights[3].gradient));
    gemm(matrix(d_out), transpose(matrix(wo_)), matrix(d_mixed_));
    for_each_head([&](int64_t sequence, int64_t head, TensorView scores) {
      const int64_t kv = head / queries_;
      const Into into = head % queries_ == 0 ? Into::overwrite : Into::add;
      const Matrix d_mixed = of(d_mixed_, sequence, head);
      gemm(transpose(matrix(scores)), d_mixed, of(dv_, sequence, kv), into);
      gemm(d_mixed, transpose(of(v_, sequence, kv)), matrix(d_scores_));
      softmax_backward(scores.as<T>(), d_scores_.view().template as<T>());
      gemm(matrix(d_scores_), of(k_, sequence, kv), of(dq_, sequence, head));
      gemm(transpose(matrix(d_scores_)), of(q_, sequence, head), of(dk_, sequence, kv), into);
    });
    const Tensor* d[] = {&dq_, &dk_, &dv_};
    const Tensor* w[] = {&wq_, &wk_, &wv_};
    for (size_t i = 0; i < 3; ++i) {
      gemm(transpose(matrix(input)), matrix(*d[i]), plane(weights[i].gradient));
      gemm(matrix(*d[i]), transpose(matrix(*w[i])), matrix(d_input), i == 0 ? Into::overwrite : Into::add);
    }
  }

  std::vector<Parameter> parameters(TensorView gradients) override {
    const Share one{0, 1, 1}, all{0, model_dim_, model_dim_};
    std::vector<Parameter> result{{std::string(kWq), {one, all, columns_}, wq_, {}, SummedOver::dp},
                                  {std::string(kWk), {one, all, kv_columns_}, wk_, {}, SummedOver::dp},
                                  {std::string(kWv), {one, all, kv_columns_}, wv_, {}, SummedOver::dp},
                                  {std::string(kWo), {one, columns_, all}, wo_, {}, SummedOver::dp}};
    if (gradients.data() == nullptr) return result;
    int64_t first = 0;
    for (Parameter& p : result) {
      p.gradient = gradients.part(first, {1, p.axes[1].count, p.axes[2].count});
      first += p.gradient.elements();
    }
    return result;
  }

 private:
  static Matrix plane(TensorView t) { return matrix(t.part(0, {t.size(1), t.size(2)})); }

  // The columns of these heads, or of the key-value heads that as many `queries` read each.
  static Share of_heads(Share heads, int64_t head_dim, int64_t queries = 1) {
    return {heads.first / queries * head_dim, heads.count / queries * head_dim, heads.total / queries * head_dim};
  }

  // The rows of one sequence and the columns of one head of a (B L, local heads d) tensor.
  Matrix of(const Tensor& t, int64_t sequence, int64_t head) const {
    const int64_t width = t.view().size(1);
    return columns(t.view().part(sequence * seq_ * width, {seq_, width}), head * head_dim_, head_dim_);
  }

  template <class Body>
  void for_each_head(Body body) {
    for (int64_t sequence = 0; sequence < tokens_ / seq_; ++sequence)
      for (int64_t head = 0; head < heads_; ++head)
        body(sequence, head, scores_.view().part((sequence * heads_ + head) * seq_ * seq_, {seq_, seq_}));
  }

  // In place, row by row over the tokens up to its own; 0 beyond.
  void softmax(T* row) const {
    for (int64_t i = 0; i < seq_; ++i, row += seq_) {
      const T top = *std::max_element(row, row + i + 1);
      T sum = 0;
      for (int64_t j = 0; j <= i; ++j) sum += row[j] = std::exp(scale_ * (row[j] - top));
      for (int64_t j = 0; j <= i; ++j) row[j] /= sum;
      std::fill(row + i + 1, row + seq_, T(0));
    }
  }

  // In place in d: d = scale * p * (d - <p, d>).
  void softmax_backward(const T* p, T* d) const {
    for (int64_t i = 0; i < seq_; ++i, p += seq_, d += seq_) {
      T mean = 0;
      for (int64_t j = 0; j <= i; ++j) mean += p[j] * d[j];
      for (int64_t j = 0; j < seq_; ++j) d[j] = scale_ * p[j] * (d[j] - mean);
    }
  }

  int64_t tokens_, seq_, model_dim_, head_dim_, heads_;
  int64_t queries_;             // heads that read one key-value head
  Share columns_, kv_columns_;  // of this rank's heads, of M; of its key-value heads
  T scale_;
  Tensor wq_, wk_, wv_, wo_;
  Tensor q_, mixed_, dq_, d_mixed_;  // (B L, local heads d)
  Tensor k_, v_, dk_, dv_;           // (B L, local key-value heads d)
  Tensor scores_;                    // (B local heads, L, L): after softmax
  Tensor d_scores_;                  // of one head
};

}  // namespace

std::unique_ptr<Attention> make_attention(const AttentionSetup& setup) {
  return make_for<Attention, CausalAttention>(setup.rank.dtype(), setup);
}

}  // namespace moe
