#include "moe/tensor/ring_heads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "moe/tensor/element.h"

namespace moe {

RingHeads::RingHeads(Math& math, const HeadsShape& shape, TensorStore& kept, TensorStore& backward)
    : math_(math),
      shape_(shape),
      piece_(shape.seq / (int64_t{2} * shape.ranks)),
      queries_(shape.heads / shape.kv_heads),
      scale_(1 / std::sqrt(static_cast<double>(shape.dim))) {
  require<Unsupported>(
      math.memory().kind() == DeviceKind::cpu,
      "cp-exchange: found ring on a GPU, expected allgather: only the CPU computes attention by blocks");
  require<WrongResult>(shape.window == 0 && shape.parts == 1,
                       "heads of a ring: found window = {} and {} parts, expected no window and whole samples",
                       shape.window, shape.parts);
  const DType numbers = accumulation_type(shape.dtype);
  sums_ = kept.tensor("sums of exponentials", {shape.heads, shape.tokens}, numbers, math.memory());
  mean_ = backward.tensor("sums of output gradients", {shape.heads, shape.tokens}, numbers, math.memory());
}

// Calls body(tile) for each pair of a piece of this rank's queries and a piece of the keys of rank `from` that those
// queries see. A sequence has 2 R pieces for R ranks; rank r has pieces r and 2 R - 1 - r.
template <class Body>
void RingHeads::for_each_tile(int from, Body body) const {
  const int64_t pieces = int64_t{2} * shape_.ranks, own_tokens = 2 * piece_;
  for (int64_t sequence = 0; sequence < shape_.tokens / own_tokens; ++sequence)
    for (int64_t query = 0; query < queries_; ++query)
      for (const int64_t row : {int64_t{0}, piece_})
        for (const int64_t key_row : {int64_t{0}, piece_}) {
          const int64_t piece = row == 0 ? shape_.rank : pieces - 1 - shape_.rank;
          const int64_t keys = key_row == 0 ? from : pieces - 1 - from;
          if (shape_.causal && keys > piece) continue;
          body(Tile{sequence, query, row, key_row, shape_.causal && keys == piece});
        }
}

// Returns a piece's rows and the columns of head `first` of `heads`.
Matrix RingHeads::head(TensorView rows, int64_t sequence, int64_t row, int64_t heads, int64_t first) const {
  const int64_t width = rows.size(1), dim = width / heads;
  return columns(rows.part((sequence * 2 * piece_ + row) * width, {piece_, width}), first * dim, dim);
}

// Returns the address in `numbers` (heads, tokens) of the tile's first row, for its query head of a key-value head.
template <class T>
T* RingHeads::number(TensorView numbers, const Tile& tile, int64_t kv_head) const {
  const int64_t head = kv_head * queries_ + tile.query;
  return numbers.as<T>() + head * shape_.tokens + tile.sequence * 2 * piece_ + tile.row;
}

// Computes q k^T of a tile for all key-value heads, not yet scaled.
void RingHeads::scores(TensorView q, const KeysValues& block, const Tile& t, TensorView out) {
  const int64_t tile = piece_ * piece_;
  math_.gemm(head(q, t.sequence, t.row, shape_.heads, t.query),
             transpose(head(block.k, t.sequence, t.key_row, shape_.kv_heads, 0)), matrix(out.part(0, {piece_, piece_})),
             Into::overwrite, {shape_.kv_heads, queries_ * shape_.dim, shape_.dim, tile});
}

void RingHeads::forward(TensorView q, const KeysValues& block, int from, TensorView out, bool first) {
  const int64_t dim = shape_.value_width(), width = shape_.heads * dim;
  const Tensor all_scores = make_scores();
  with_element(shape_.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (first) {
      std::memset(out.data(), 0, static_cast<size_t>(out.bytes()));
      std::fill_n(sums_.as<T>(), sums_.elements(), -std::numeric_limits<T>::infinity());
    }
    for_each_tile(from, [&](const Tile& t) {
      scores(q, block, t, all_scores);
      for (int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
        T* row = all_scores.view().as<T>() + kv * piece_ * piece_;
        T* sum = number<T>(sums_, t, kv);
        T* mixed = out.as<T>() + (t.sequence * 2 * piece_ + t.row) * width + (kv * queries_ + t.query) * dim;
        for (int64_t i = 0; i < piece_; ++i, row += piece_, mixed += width) {
          const int64_t seen = t.diagonal ? i + 1 : piece_;
          const T scale = static_cast<T>(scale_), top = std::max(sum[i], scale * *std::max_element(row, row + seen));
          T all = std::exp(sum[i] - top);
          for (int64_t j = 0; j < seen; ++j) all += std::exp(scale * row[j] - top);
          const T merged = top + std::log(all), before = std::exp(sum[i] - merged);
          for (int64_t j = 0; j < seen; ++j) row[j] = std::exp(scale * row[j] - merged);
          std::fill(row + seen, row + piece_, T(0));
          for (int64_t d = 0; d < dim; ++d) mixed[d] *= before;
          sum[i] = merged;
        }
      }
      math_.gemm(matrix(all_scores.view().part(0, {piece_, piece_})),
                 head(block.v, t.sequence, t.key_row, shape_.kv_heads, 0),
                 head(out, t.sequence, t.row, shape_.heads, t.query), Into::add,
                 {shape_.kv_heads, piece_ * piece_, dim, queries_ * dim});
    });
  });
}

void RingHeads::begin_backward(TensorView out, TensorView d_out) {
  const int64_t dim = shape_.value_width(), width = shape_.heads * dim;
  with_element(shape_.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t head = 0; head < shape_.heads; ++head)
      for (int64_t token = 0; token < shape_.tokens; ++token) {
        const T *o = out.as<T>() + token * width + head * dim, *d = d_out.as<T>() + token * width + head * dim;
        T sum = 0;
        for (int64_t j = 0; j < dim; ++j) sum += o[j] * d[j];
        mean_.as<T>()[head * shape_.tokens + token] = sum;
      }
  });
}

void RingHeads::backward(TensorView q, const KeysValues& block, int from, TensorView d_out, const KeysValues& d,
                         TensorView dq, bool first) {
  const int64_t dim = shape_.dim, value_dim = shape_.value_width(), tile = piece_ * piece_;
  for (const TensorView& gradient : {d.k, d.v}) std::memset(gradient.data(), 0, static_cast<size_t>(gradient.bytes()));
  if (first) std::memset(dq.data(), 0, static_cast<size_t>(dq.bytes()));
  const Tensor all_scores = make_scores(), all_d_scores = make_scores();
  const Matrix p = matrix(all_scores.view().part(0, {piece_, piece_}));
  const Matrix d_scores = matrix(all_d_scores.view().part(0, {piece_, piece_}));
  for_each_tile(from, [&](const Tile& t) {
    const auto own = [&](TensorView rows) { return head(rows, t.sequence, t.row, shape_.heads, t.query); };
    const auto keys = [&](TensorView rows) { return head(rows, t.sequence, t.key_row, shape_.kv_heads, 0); };
    scores(q, block, t, all_scores);
    math_.gemm(own(d_out), transpose(keys(block.v)), d_scores, Into::overwrite,
               {shape_.kv_heads, queries_ * value_dim, value_dim, tile});
    with_element(shape_.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
        T *row = all_scores.view().as<T>() + kv * tile, *d_row = all_d_scores.view().as<T>() + kv * tile;
        const T *sum = number<T>(sums_, t, kv), *mean = number<T>(mean_, t, kv);
        for (int64_t i = 0; i < piece_; ++i, row += piece_, d_row += piece_) {
          const int64_t seen = t.diagonal ? i + 1 : piece_;
          const T scale = static_cast<T>(scale_);
          for (int64_t j = 0; j < seen; ++j) row[j] = std::exp(scale * row[j] - sum[i]);
          for (int64_t j = 0; j < seen; ++j) d_row[j] = scale * row[j] * (d_row[j] - mean[i]);
          std::fill(row + seen, row + piece_, T(0));
          std::fill(d_row + seen, d_row + piece_, T(0));
        }
      }
    });
    math_.gemm(transpose(p), own(d_out), keys(d.v), Into::add,
               {shape_.kv_heads, tile, queries_ * value_dim, value_dim});
    math_.gemm(d_scores, keys(block.k), own(dq), Into::add, {shape_.kv_heads, tile, dim, queries_ * dim});
    math_.gemm(transpose(d_scores), own(q), keys(d.k), Into::add, {shape_.kv_heads, tile, queries_ * dim, dim});
  });
}

}  // namespace moe
