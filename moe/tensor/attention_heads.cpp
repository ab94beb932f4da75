#include "moe/tensor/attention_heads.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moe {
namespace {

// Attention by GEMMs. One batched GEMM handles all key-value heads; the query heads that share a key-value head are
// computed one after the other. A tile is the rows of the scores that belong to some consecutive tokens, restricted to
// the columns of the tokens that they see.
class ComposedHeads final : public AttentionHeads {
 public:
  ComposedHeads(Math& math, const HeadsShape& shape, TensorStore& kept, std::shared_ptr<HeadsScratch> scratch,
                int64_t tile)
      : math_(math),
        shape_(shape),
        piece_(shape.ranks > 1 ? shape.seq / (int64_t{2} * shape.ranks) : shape.seq / shape.parts),
        tokens_(shape.recompute ? std::min(tile, piece_) : piece_),
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
      scores_ = kept.tensor("attention scores", {shape.tokens * shape.heads, shape.seq}, shape.dtype, math.memory());
  }

  void forward(const HeadInputs& in, TensorView out) override {
    for_each_tile([&](const Tile& t) {
      compute(in, t);
      for_each_seen(t, [&](const Keys& keys) {
        math_.gemm(keys.score_columns(t), rows_of(in, &KeysValues::v, keys), query_rows(out, t), keys.into(t),
                   {shape_.kv_heads, t.elements(), value_dim(), queries_ * value_dim()});
      });
    });
  }

  void backward(const HeadInputs& in, TensorView, TensorView d_out, const HeadInputs& d) override {
    const int64_t dim = shape_.dim;
    for_each_tile([&](const Tile& t) {
      if (shape_.recompute) compute(in, t);
      Tile d_tile = t;
      d_tile.scores = matrices(scratch_->d_scores, 0, t);
      const Into of_head = t.query == 0 && t.last && is_last_part() ? Into::overwrite : Into::add;
      for_each_seen(t, [&](const Keys& keys) {
        math_.gemm(transpose(keys.score_columns(t)), query_rows(d_out, t), rows_of(d, &KeysValues::v, keys), of_head,
                   {shape_.kv_heads, t.elements(), queries_ * value_dim(), value_dim()});
        math_.gemm(query_rows(d_out, t), transpose(rows_of(in, &KeysValues::v, keys)), keys.score_columns(d_tile),
                   Into::overwrite, {shape_.kv_heads, queries_ * value_dim(), value_dim(), t.elements()});
      });
      math_.attention_softmax_backward(t.scores, d_tile.scores, scale_, mask());
      for_each_seen(t, [&](const Keys& keys) {
        math_.gemm(keys.score_columns(d_tile), rows_of(in, &KeysValues::k, keys), query_rows(d.q, t), keys.into(t),
                   {shape_.kv_heads, t.elements(), dim, queries_ * dim});
        math_.gemm(transpose(keys.score_columns(d_tile)), query_rows(in.q, t), rows_of(d, &KeysValues::k, keys),
                   of_head, {shape_.kv_heads, t.elements(), queries_ * dim, dim});
      });
      if (of_head == Into::overwrite) clear_unseen(t, d);
    });
  }

 private:
  struct Tile {
    int64_t sequence, query;
    int64_t begin, rows;     // tokens [begin, begin + rows) of the rank's tokens
    int64_t from, to;        // positions [from, to) in the sequence that these tokens see
    bool last;               // whether it is the sequence's last tile on this rank
    TensorView scores = {};  // (kv_heads, rows, to - from), for the `query`-th query head of each key-value head
    int64_t elements() const { return rows * (to - from); }
  };

  // Positions [place, place + rows) of a sequence, whose keys begin at row `row` of the keys of rank (or part) `rank`.
  struct Keys {
    int64_t place, rows, rank, row;
    // Returns the columns of these keys in the scores of a tile's first key-value head.
    Matrix score_columns(const Tile& t) const {
      const int64_t height = t.scores.size(1), width = t.scores.size(2);
      return columns(t.scores.part(0, {height, width}), place - t.from, rows);
    }
    // Returns `overwrite` for the first keys of a tile, `add` for later ones.
    Into into(const Tile& t) const { return place == t.from ? Into::overwrite : Into::add; }
  };

  // Calls body(keys) for positions [from, to) of a sequence, piece by piece.
  template <class Body>
  void for_each_key(int64_t sequence, int64_t from, int64_t to, Body body) const {
    const int64_t pieces = shape_.seq / piece_;
    for (int64_t piece = from / piece_; piece * piece_ < to; ++piece) {
      const bool second = shape_.ranks > 1 && piece >= shape_.ranks;
      const int64_t rank = second ? pieces - 1 - piece : piece, begin = std::max(from, piece * piece_);
      const int64_t row = sequence * local_tokens() + (second ? piece_ : 0) + begin - piece * piece_;
      body(Keys{begin, std::min(to, (piece + 1) * piece_) - begin, rank, row});
    }
  }
  template <class Body>
  void for_each_seen(const Tile& t, Body body) const {
    for_each_key(t.sequence, t.from, t.to, body);
  }

  // Zeroes the gradients of keys and values that the first tile does not see. Tiles that come later add to them; if
  // ranks share the sequences, it is possible that only other ranks contribute to them.
  void clear_unseen(const Tile& t, const HeadInputs& d) {
    const auto clear = [&](const Keys& keys) {
      for (const auto of : {&KeysValues::k, &KeysValues::v}) {
        const Matrix to = rows_of(d, of, keys);
        const Matrix none{nullptr, to.rows, 0, 0, shape_.dtype}, of_none{nullptr, 0, to.cols, 0, shape_.dtype};
        math_.gemm(none, of_none, to, Into::overwrite, {shape_.kv_heads, 0, 0, to.cols});
      }
    };
    for_each_key(t.sequence, 0, t.from, clear);
    for_each_key(t.sequence, t.to, shape_.seq, clear);
  }

  // Computes the softmax of a tile's scores.
  void compute(const HeadInputs& in, const Tile& t) {
    for_each_seen(t, [&](const Keys& keys) {
      math_.gemm(query_rows(in.q, t), transpose(rows_of(in, &KeysValues::k, keys)), keys.score_columns(t),
                 Into::overwrite, {shape_.kv_heads, queries_ * shape_.dim, shape_.dim, t.elements()});
    });
    math_.attention_softmax(t.scores, scale_, mask());
  }

  int64_t value_dim() const { return shape_.value_width(); }
  AttentionMask mask() const { return {shape_.causal, shape_.window}; }

  // Returns the number of a sequence's tokens on this rank, or in this part.
  int64_t local_tokens() const { return shape_.seq / shape_.ranks / shape_.parts; }
  bool is_last_part() const { return shape_.part + 1 == shape_.parts; }

  // Return matrices of the first key-value head, from which a batch steps to the others: query_rows() the tile's rows
  // of its query head, rows_of() the rows of these keys or values.
  Matrix query_rows(TensorView t, const Tile& tile) const {
    const int64_t width = t.size(1), dim = width / shape_.heads;
    return columns(t.part((tile.sequence * local_tokens() + tile.begin) * width, {tile.rows, width}), tile.query * dim,
                   dim);
  }
  Matrix rows_of(const HeadInputs& in, TensorView KeysValues::*of, const Keys& keys) const {
    const bool own = shape_.parts == 1 || keys.rank == shape_.part;
    const TensorView t = own ? KeysValues{in.k, in.v}.*of : in.earlier_parts[keys.rank].*of;
    const int64_t width = t.size(1), first = shape_.parts == 1 ? keys.rank * shape_.rank_stride : 0;
    return columns(t.part(first + keys.row * width, {keys.rows, width}), 0, width / shape_.kv_heads);
  }

  // Calls body(tile) for each tile of each sequence and query head. The last tile comes first because, without a
  // window, it is the only one that sees all keys and values that the rank's tokens see.
  template <class Body>
  void for_each_tile(Body body) {
    const int64_t own_pieces = local_tokens() / piece_;
    for (int64_t sequence = 0; sequence < shape_.tokens / local_tokens(); ++sequence)
      for (int64_t query = 0; query < queries_; ++query)
        for (int64_t piece = own_pieces - 1; piece >= 0; --piece)
          for (int64_t begin = (piece_ - 1) / tokens_ * tokens_; begin >= 0; begin -= tokens_) {
            const int64_t end = std::min(begin + tokens_, piece_), first = first_place(piece);
            Tile tile{sequence,
                      query,
                      piece * piece_ + begin,
                      end - begin,
                      shape_.window > 0 ? std::max<int64_t>(0, first + begin + 1 - shape_.window) : 0,
                      shape_.causal ? first + end : shape_.seq,
                      piece + 1 == own_pieces && end == piece_};
            tile.scores = shape_.recompute
                              ? matrices(scratch_->scores, 0, tile)
                              : matrices(scores_, (sequence * queries_ + query) * own_pieces + piece, tile);
            body(tile);
          }
  }
  // Returns the position in its sequence at which one of the rank's pieces begins.
  int64_t first_place(int64_t piece) const {
    return (piece == 0 ? shape_.rank + shape_.part : 2 * shape_.ranks - 1 - shape_.rank) * piece_;
  }
  // Returns matrices `number` (kv_heads, rows, to - from) of `all`, which has room for all rows and columns of a piece.
  TensorView matrices(TensorView all, int64_t number, const Tile& tile) const {
    return TensorView(all.data(), {}, shape_.dtype, all.device())
        .part(number * shape_.kv_heads * piece_ * shape_.seq, {shape_.kv_heads, tile.rows, tile.to - tile.from});
  }

  Math& math_;
  HeadsShape shape_;
  int64_t piece_;    // consecutive tokens of a piece: a sequence, a part of it, or half of a rank's share
  int64_t tokens_;   // tokens of a tile
  int64_t queries_;  // query heads that read one key-value head
  double scale_;
  TensorView scores_;  // (heads tokens, L), by sequence, query and piece: kept softmaxes; no data if recomputed
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
