#include "moe/tensor/attention_heads.h"

#include <cmath>
#include <utility>

namespace moe {
namespace {

// Computes by GEMMs: key-value heads are a batch, and the heads that read one come one after the other.
class ComposedHeads final : public AttentionHeads {
 public:
  ComposedHeads(Math& math, const HeadsShape& shape, TensorStore& kept, std::shared_ptr<HeadsScratch> scratch)
      : math_(math),
        shape_(shape),
        queries_(shape.heads / shape.kv_heads),
        scale_(1 / std::sqrt(static_cast<double>(shape.dim))),
        scratch_(scratch ? std::move(scratch) : std::make_shared<HeadsScratch>()) {
    const auto reserve = [&](Tensor& t) {
      if (t.view().data() == nullptr ||
          t.view().bytes() < shape.kv_heads * shape.seq * shape.seq * bytes_of(shape.dtype))
        t = Tensor({shape.kv_heads, shape.seq, shape.seq}, shape.dtype, math.memory());
    };
    reserve(scratch_->d_scores);
    if (shape.recompute)
      reserve(scratch_->scores);
    else
      scores_ = kept.tensor("attention scores", {shape.tokens / shape.seq * shape.heads, shape.seq, shape.seq},
                            shape.dtype, math.memory());
  }

  void forward(const HeadInputs& in, TensorView out) override {
    const int64_t square = shape_.seq * shape_.seq, d = shape_.dim, wide = queries_ * d;
    for_each_query([&](int64_t sequence, int64_t query, TensorView scores) {
      compute(in, sequence, query, scores);
      math_.gemm(first(scores), of(in.v, sequence), of(out, sequence, query), Into::overwrite,
                 {shape_.kv_heads, square, d, wide});
    });
  }

  void backward(const HeadInputs& in, TensorView, TensorView d_out, const HeadInputs& d) override {
    const int64_t square = shape_.seq * shape_.seq, dim = shape_.dim, wide = queries_ * dim;
    const TensorView d_scores = part_of(scratch_->d_scores, 0);
    for_each_query([&](int64_t sequence, int64_t query, TensorView scores) {
      if (shape_.recompute) compute(in, sequence, query, scores);
      const Into of_head = query == 0 ? Into::overwrite : Into::add;
      const Matrix d_mixed = of(d_out, sequence, query);
      math_.gemm(transpose(first(scores)), d_mixed, of(d.v, sequence), of_head, {shape_.kv_heads, square, wide, dim});
      math_.gemm(d_mixed, transpose(of(in.v, sequence)), first(d_scores), Into::overwrite,
                 {shape_.kv_heads, wide, dim, square});
      math_.attention_softmax_backward(scores, d_scores, scale_, shape_.causal);
      math_.gemm(first(d_scores), of(in.k, sequence), of(d.q, sequence, query), Into::overwrite,
                 {shape_.kv_heads, square, dim, wide});
      math_.gemm(transpose(first(d_scores)), of(in.q, sequence, query), of(d.k, sequence), of_head,
                 {shape_.kv_heads, square, wide, dim});
    });
  }

 private:
  // Computes the softmaxes of one sequence and of every key-value head's query of that number.
  void compute(const HeadInputs& in, int64_t sequence, int64_t query, TensorView scores) {
    math_.gemm(of(in.q, sequence, query), transpose(of(in.k, sequence)), first(scores), Into::overwrite,
               {shape_.kv_heads, queries_ * shape_.dim, shape_.dim, shape_.seq * shape_.seq});
    math_.attention_softmax(scores, scale_, shape_.causal);
  }

  // Returns the rows of one sequence and the columns of one head, the first of a batch.
  Matrix of(TensorView t, int64_t sequence, int64_t head = 0) const {
    const int64_t width = t.size(1);
    return columns(t.part(sequence * shape_.seq * width, {shape_.seq, width}), head * shape_.dim, shape_.dim);
  }
  static Matrix first(TensorView squares) { return matrix(squares.part(0, {squares.size(1), squares.size(2)})); }

  // Calls body(sequence, query, the scores of every key-value head's query of that number).
  template <class Body>
  void for_each_query(Body body) {
    for (int64_t sequence = 0; sequence < shape_.tokens / shape_.seq; ++sequence)
      for (int64_t query = 0; query < queries_; ++query)
        body(sequence, query,
             shape_.recompute ? part_of(scratch_->scores, 0) : part_of(scores_, sequence * queries_ + query));
  }
  // Returns the (kv_heads, L, L) of that number.
  TensorView part_of(TensorView squares, int64_t number) const {
    const int64_t seq = shape_.seq;
    const TensorView all(squares.data(), {}, shape_.dtype, squares.device());
    return all.part(number * shape_.kv_heads * seq * seq, {shape_.kv_heads, seq, seq});
  }

  Math& math_;
  HeadsShape shape_;
  int64_t queries_;  // heads that read one key-value head
  double scale_;
  TensorView scores_;  // (B heads, L, L), by sequence and query: after softmax; none where they are computed again
  std::shared_ptr<HeadsScratch> scratch_;
};

}  // namespace

std::unique_ptr<AttentionHeads> make_composed_heads(Math& math, const HeadsShape& shape, TensorStore& kept,
                                                    std::shared_ptr<HeadsScratch> scratch) {
  return std::make_unique<ComposedHeads>(math, shape, kept, std::move(scratch));
}

std::unique_ptr<AttentionHeads> Math::make_heads(const HeadsShape& shape, TensorStore& kept) {
  return make_composed_heads(*this, shape, kept);
}

}  // namespace moe
