#include "moe/tensor/attention_heads.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moe {
namespace {

// Computes by GEMMs: key-value heads are a batch, and the heads that read one come one after the other. A tile is some
// consecutive tokens' rows of the scores, with the columns of the tokens that they see.
class ComposedHeads final : public AttentionHeads {
 public:
  ComposedHeads(Math& math, const HeadsShape& shape, TensorStore& kept, std::shared_ptr<HeadsScratch> scratch,
                int64_t tile)
      : math_(math),
        shape_(shape),
        tokens_(shape.recompute ? std::min(tile, shape.seq) : shape.seq),
        queries_(shape.heads / shape.kv_heads),
        scale_(1 / std::sqrt(static_cast<double>(shape.dim))),
        scratch_(scratch ? std::move(scratch) : std::make_shared<HeadsScratch>()) {
    const auto reserve = [&](Tensor& t) {
      if (t.view().data() == nullptr || t.view().bytes() < shape.kv_heads * tokens_ * shape.seq * bytes_of(shape.dtype))
        t = Tensor({shape.kv_heads, tokens_, shape.seq}, shape.dtype, math.memory());
    };
    reserve(scratch_->d_scores);
    if (shape.recompute)
      reserve(scratch_->scores);
    else
      scores_ = kept.tensor("attention scores", {shape.tokens / shape.seq * shape.heads, shape.seq, shape.seq},
                            shape.dtype, math.memory());
  }

  void forward(const HeadInputs& in, TensorView out) override {
    for_each_tile([&](const Tile& t) {
      compute(in, t);
      math_.gemm(first(t.scores), seen(in.v, t), own(out, t), Into::overwrite,
                 {shape_.kv_heads, t.elements(), shape_.dim, wide()});
    });
  }

  void backward(const HeadInputs& in, TensorView, TensorView d_out, const HeadInputs& d) override {
    const int64_t dim = shape_.dim;
    for_each_tile([&](const Tile& t) {
      if (shape_.recompute) compute(in, t);
      const TensorView d_scores = matrices(scratch_->d_scores, 0, t);
      const Into of_head = t.query == 0 && t.last ? Into::overwrite : Into::add;
      math_.gemm(transpose(first(t.scores)), own(d_out, t), seen(d.v, t), of_head,
                 {shape_.kv_heads, t.elements(), wide(), dim});
      math_.gemm(own(d_out, t), transpose(seen(in.v, t)), first(d_scores), Into::overwrite,
                 {shape_.kv_heads, wide(), dim, t.elements()});
      math_.attention_softmax_backward(t.scores, d_scores, scale_, shape_.causal);
      math_.gemm(first(d_scores), seen(in.k, t), own(d.q, t), Into::overwrite,
                 {shape_.kv_heads, t.elements(), dim, wide()});
      math_.gemm(transpose(first(d_scores)), own(in.q, t), seen(d.k, t), of_head,
                 {shape_.kv_heads, t.elements(), wide(), dim});
    });
  }

 private:
  struct Tile {
    int64_t sequence, query;
    int64_t begin, rows, columns;  // tokens [begin, begin + rows), which see [0, columns)
    bool last;                     // of the sequence
    TensorView scores = {};        // (kv_heads, rows, columns): of each key-value head's query of that number
    int64_t elements() const { return rows * columns; }
  };

  // Computes a tile's softmaxes.
  void compute(const HeadInputs& in, const Tile& t) {
    math_.gemm(own(in.q, t), transpose(seen(in.k, t)), first(t.scores), Into::overwrite,
               {shape_.kv_heads, wide(), shape_.dim, t.elements()});
    math_.attention_softmax(t.scores, scale_, shape_.causal);
  }

  // Counts the columns of the heads that read one key-value head.
  int64_t wide() const { return queries_ * shape_.dim; }

  // Returns the tile's rows of its head of a batch's first key-value head, and what they see of that.
  Matrix own(TensorView t, const Tile& tile) const { return rows_of(t, tile, tile.begin, tile.rows, tile.query); }
  Matrix seen(TensorView t, const Tile& tile) const { return rows_of(t, tile, 0, tile.columns, 0); }
  Matrix rows_of(TensorView t, const Tile& tile, int64_t begin, int64_t rows, int64_t head) const {
    const int64_t width = t.size(1);
    return columns(t.part((tile.sequence * shape_.seq + begin) * width, {rows, width}), head * shape_.dim, shape_.dim);
  }
  static Matrix first(TensorView matrices) { return matrix(matrices.part(0, {matrices.size(1), matrices.size(2)})); }

  // Calls body(tile) of all sequences and queries. The last tile comes first: it alone sees all keys and values.
  template <class Body>
  void for_each_tile(Body body) {
    for (int64_t sequence = 0; sequence < shape_.tokens / shape_.seq; ++sequence)
      for (int64_t query = 0; query < queries_; ++query)
        for (int64_t begin = (shape_.seq - 1) / tokens_ * tokens_; begin >= 0; begin -= tokens_) {
          const int64_t end = std::min(begin + tokens_, shape_.seq);
          Tile tile{sequence, query, begin, end - begin, shape_.causal ? end : shape_.seq, end == shape_.seq};
          tile.scores = shape_.recompute ? matrices(scratch_->scores, 0, tile)
                                         : matrices(scores_, sequence * queries_ + query, tile);
          body(tile);
        }
  }
  // Returns the (kv_heads, rows, columns) of that number.
  TensorView matrices(TensorView all, int64_t number, const Tile& tile) const {
    return TensorView(all.data(), {}, shape_.dtype, all.device())
        .part(number * shape_.kv_heads * tile.elements(), {shape_.kv_heads, tile.rows, tile.columns});
  }

  Math& math_;
  HeadsShape shape_;
  int64_t tokens_;   // of a tile
  int64_t queries_;  // heads that read one key-value head
  double scale_;
  TensorView scores_;  // (B heads, L, L), by sequence and query: after softmax; none where they are computed again
  std::shared_ptr<HeadsScratch> scratch_;
};

}  // namespace

std::unique_ptr<AttentionHeads> make_composed_heads(Math& math, const HeadsShape& shape, TensorStore& kept,
                                                    std::shared_ptr<HeadsScratch> scratch, int64_t tile) {
  return std::make_unique<ComposedHeads>(math, shape, kept, std::move(scratch), tile);
}

std::unique_ptr<AttentionHeads> Math::make_heads(const HeadsShape& shape, TensorStore& kept) {
  return make_composed_heads(*this, shape, kept);
}

}  // namespace moe
