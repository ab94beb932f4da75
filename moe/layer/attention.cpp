#include "moe/layer/attention.h"

#include <cmath>

#include "moe/tensor/tensor.h"

namespace moe {
namespace {

// Key-value heads are a batch; of the heads that read them, one after the other.
class CausalAttention final : public Attention {
 public:
  explicit CausalAttention(const PartSetup& setup)
      : math_(setup.math),
        tokens_(setup.rank.mp_tokens()),
        seq_(setup.rank.shape.layer.seq),
        model_dim_(setup.rank.model_dim()),
        head_dim_(setup.rank.head_dim),
        heads_(setup.rank.heads.count),
        queries_(setup.rank.shape.layer.heads / setup.rank.shape.layer.kv_heads),
        columns_(of_heads(setup.rank.heads, head_dim_)),
        kv_columns_(of_heads(setup.rank.heads, head_dim_, queries_)),
        scale_(1 / std::sqrt(static_cast<double>(head_dim_))) {
    const auto make = [&](std::initializer_list<int64_t> shape) {
      return Tensor(shape, setup.rank.dtype(), math_.memory());
    };
    const DType dtype = setup.rank.dtype();
    wq_ = setup.weight(kWq, {model_dim_, columns_.count}, dtype);
    wk_ = setup.weight(kWk, {model_dim_, kv_columns_.count}, dtype);
    wv_ = setup.weight(kWv, {model_dim_, kv_columns_.count}, dtype);
    wo_ = setup.weight(kWo, {columns_.count, model_dim_}, dtype);
    for (Tensor* t : {&q_, &mixed_, &dq_, &d_mixed_}) *t = make({tokens_, columns_.count});
    for (Tensor* t : {&k_, &v_, &dk_, &dv_}) *t = make({tokens_, kv_columns_.count});
    scores_ = make({tokens_ / seq_ * heads_, seq_, seq_});
    d_scores_ = make({heads_ / queries_, seq_, seq_});
    for (const Parameter& p : parameters({})) fill_weight(p, model_dim_, setup.seed, math_.memory());
  }

  void forward(TensorView input, TensorView out) override {
    math_.gemm(matrix(input), matrix(wq_), matrix(q_));
    math_.gemm(matrix(input), matrix(wk_), matrix(k_));
    math_.gemm(matrix(input), matrix(wv_), matrix(v_));
    for_each_query([&](int64_t sequence, int64_t query, TensorView scores) {
      math_.gemm(of(q_, sequence, query), transpose(of(k_, sequence)), first(scores), Into::overwrite,
                 {kv_heads(), queries_ * head_dim_, head_dim_, seq_ * seq_});
      math_.causal_softmax(scores, scale_);
      math_.gemm(first(scores), of(v_, sequence), of(mixed_, sequence, query), Into::overwrite,
                 {kv_heads(), seq_ * seq_, head_dim_, queries_ * head_dim_});
    });
    math_.gemm(matrix(mixed_), matrix(wo_), matrix(out));
  }

  void backward(TensorView input, TensorView d_out, TensorView d_input, TensorView gradients, Into into) override {
    const auto weights = parameters(gradients);
    math_.gemm(transpose(matrix(mixed_)), matrix(d_out), plane(weights[3].gradient), into);
    math_.gemm(matrix(d_out), transpose(matrix(wo_)), matrix(d_mixed_));
    const int64_t square = seq_ * seq_, wide = queries_ * head_dim_;
    for_each_query([&](int64_t sequence, int64_t query, TensorView scores) {
      const Into of_head = query == 0 ? Into::overwrite : Into::add;
      const Matrix d_mixed = of(d_mixed_, sequence, query);
      math_.gemm(transpose(first(scores)), d_mixed, of(dv_, sequence), of_head, {kv_heads(), square, wide, head_dim_});
      math_.gemm(d_mixed, transpose(of(v_, sequence)), first(d_scores_), Into::overwrite,
                 {kv_heads(), wide, head_dim_, square});
      math_.causal_softmax_backward(scores, d_scores_, scale_);
      math_.gemm(first(d_scores_), of(k_, sequence), of(dq_, sequence, query), Into::overwrite,
                 {kv_heads(), square, head_dim_, wide});
      math_.gemm(transpose(first(d_scores_)), of(q_, sequence, query), of(dk_, sequence), of_head,
                 {kv_heads(), square, wide, head_dim_});
    });
    const Tensor* d[] = {&dq_, &dk_, &dv_};
    const TensorView w[] = {wq_, wk_, wv_};
    for (size_t i = 0; i < 3; ++i) {
      math_.gemm(transpose(matrix(input)), matrix(*d[i]), plane(weights[i].gradient), into);
      math_.gemm(matrix(*d[i]), transpose(matrix(w[i])), matrix(d_input), i == 0 ? Into::overwrite : Into::add);
    }
  }

  std::vector<Parameter> parameters(TensorView gradients) override {
    const ShardRange one{0, 1, 1}, all{0, model_dim_, model_dim_};
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
  static ShardRange of_heads(ShardRange heads, int64_t head_dim, int64_t queries = 1) {
    return {heads.first / queries * head_dim, heads.count / queries * head_dim, heads.total / queries * head_dim};
  }

  int64_t kv_heads() const { return heads_ / queries_; }

  // The rows of one sequence and the columns of one head of a (B L, local heads d) tensor: the first of a batch.
  Matrix of(const Tensor& t, int64_t sequence, int64_t head = 0) const {
    const int64_t width = t.view().size(1);
    return columns(t.view().part(sequence * seq_ * width, {seq_, width}), head * head_dim_, head_dim_);
  }
  static Matrix first(TensorView squares) { return matrix(squares.part(0, {squares.size(1), squares.size(2)})); }

  // Calls body(sequence, query, the scores of every key-value head's query of that number).
  template <class Body>
  void for_each_query(Body body) {
    const int64_t of_batch = kv_heads() * seq_ * seq_;
    for (int64_t sequence = 0; sequence < tokens_ / seq_; ++sequence)
      for (int64_t query = 0; query < queries_; ++query)
        body(sequence, query, scores_.view().part((sequence * queries_ + query) * of_batch, {kv_heads(), seq_, seq_}));
  }

  Math& math_;
  int64_t tokens_, seq_, model_dim_, head_dim_, heads_;
  int64_t queries_;                  // heads that read one key-value head
  ShardRange columns_, kv_columns_;  // of this rank's heads, of M; of its key-value heads
  double scale_;
  Weight wq_, wk_, wv_, wo_;
  Tensor q_, mixed_, dq_, d_mixed_;  // (B L, local heads d)
  Tensor k_, v_, dk_, dv_;           // (B L, local key-value heads d)
  Tensor scores_;                    // (B local heads, L, L), by sequence and query: after softmax
  Tensor d_scores_;                  // of a batch
};

}  // namespace

std::unique_ptr<Attention> make_attention(const PartSetup& setup) { return std::make_unique<CausalAttention>(setup); }

}  // namespace moe
