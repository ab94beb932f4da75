#include "moe/tensor/causal_heads.h"

#include <cmath>

#include "moe/tensor/tensor.h"

namespace moe {
namespace {

// Key-value heads are a batch; of the heads that read them, one after the other.
class ComposedHeads final : public CausalHeads {
 public:
  ComposedHeads(Math& math, const HeadsShape& shape)
      : math_(math),
        shape_(shape),
        queries_(shape.heads / shape.kv_heads),
        scale_(1 / std::sqrt(static_cast<double>(shape.dim))),
        scores_({shape.tokens / shape.seq * shape.heads, shape.seq, shape.seq}, shape.dtype, math.memory()),
        d_scores_({shape.kv_heads, shape.seq, shape.seq}, shape.dtype, math.memory()) {}

  void forward(const HeadInputs& in, TensorView out) override {
    const int64_t square = shape_.seq * shape_.seq, d = shape_.dim, wide = queries_ * d;
    for_each_query([&](int64_t sequence, int64_t query, TensorView scores) {
      math_.gemm(of(in.q, sequence, query), transpose(of(in.k, sequence)), first(scores), Into::overwrite,
                 {shape_.kv_heads, wide, d, square});
      math_.causal_softmax(scores, scale_);
      math_.gemm(first(scores), of(in.v, sequence), of(out, sequence, query), Into::overwrite,
                 {shape_.kv_heads, square, d, wide});
    });
  }

  void backward(const HeadInputs& in, TensorView, TensorView d_out, const HeadInputs& d) override {
    const int64_t square = shape_.seq * shape_.seq, dim = shape_.dim, wide = queries_ * dim;
    for_each_query([&](int64_t sequence, int64_t query, TensorView scores) {
      const Into of_head = query == 0 ? Into::overwrite : Into::add;
      const Matrix d_mixed = of(d_out, sequence, query);
      math_.gemm(transpose(first(scores)), d_mixed, of(d.v, sequence), of_head, {shape_.kv_heads, square, wide, dim});
      math_.gemm(d_mixed, transpose(of(in.v, sequence)), first(d_scores_), Into::overwrite,
                 {shape_.kv_heads, wide, dim, square});
      math_.causal_softmax_backward(scores, d_scores_, scale_);
      math_.gemm(first(d_scores_), of(in.k, sequence), of(d.q, sequence, query), Into::overwrite,
                 {shape_.kv_heads, square, dim, wide});
      math_.gemm(transpose(first(d_scores_)), of(in.q, sequence, query), of(d.k, sequence), of_head,
                 {shape_.kv_heads, square, wide, dim});
    });
  }

 private:
  // The rows of one sequence and the columns of one head: the first of a batch.
  Matrix of(TensorView t, int64_t sequence, int64_t head = 0) const {
    const int64_t width = t.size(1);
    return columns(t.part(sequence * shape_.seq * width, {shape_.seq, width}), head * shape_.dim, shape_.dim);
  }
  static Matrix first(TensorView squares) { return matrix(squares.part(0, {squares.size(1), squares.size(2)})); }

  // Calls body(sequence, query, the scores of every key-value head's query of that number).
  template <class Body>
  void for_each_query(Body body) {
    const int64_t seq = shape_.seq, of_batch = shape_.kv_heads * seq * seq;
    for (int64_t sequence = 0; sequence < shape_.tokens / seq; ++sequence)
      for (int64_t query = 0; query < queries_; ++query)
        body(sequence, query,
             scores_.view().part((sequence * queries_ + query) * of_batch, {shape_.kv_heads, seq, seq}));
  }

  Math& math_;
  HeadsShape shape_;
  int64_t queries_;  // heads that read one key-value head
  double scale_;
  Tensor scores_;    // (B heads, L, L), by sequence and query: after softmax
  Tensor d_scores_;  // of a batch
};

}  // namespace

std::unique_ptr<CausalHeads> make_composed_heads(Math& math, const HeadsShape& shape) {
  return std::make_unique<ComposedHeads>(math, shape);
}

std::unique_ptr<CausalHeads> Math::make_heads(const HeadsShape& shape) { return make_composed_heads(*this, shape); }

}  // namespace moe
