#include "moe/model/embedding.h"

#include <algorithm>

#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"

namespace moe::model {
namespace {

bool has(const ShardRange& own, int64_t row) { return row >= own.first && row < own.first + own.count; }

// Adds row i of `from` to row row_of(i) of `to`, where the rank has that. Threads share out the columns: several of
// `from` may be added to one row.
template <class T, class RowOf>
void add_rows(int64_t rows, RowOf row_of, const ShardRange& own, const T* from, T* to, int64_t width) {
  parallel_for(width, rows * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = row_of(i);
      if (!has(own, row)) continue;
      for (int64_t j = begin; j < end; ++j) to[(row - own.first) * width + j] += from[i * width + j];
    }
  });
}

}  // namespace

Embedding::Embedding(const EndSetup& setup) : setup_(setup) {
  const LayerShape& layer = setup.layer();
  const DType dtype = setup.rank().dtype();
  const int64_t m = setup.rank().model_dim(), places = layer.rope_theta == 0 ? layer.seq : 0;
  const int64_t held = setup.rank().held.count, norm = is_post(layer.norm) ? norm_parameters(layer) : 0;
  word_rows_ = Tensor({setup.part_of(setup.vocabulary()).count, m}, dtype);
  words_ = setup.table(kEmbedding, word_rows_, setup.vocabulary(), kEmbeddingLayer, 0);
  setup.fill(words_, setup.tied() ? m : 4);
  if (places > 0) {
    place_rows_ = Tensor({setup.part_of(places).count, m}, dtype);
    places_ =
        setup.table(kPlaces, place_rows_, places, kEmbeddingLayer, shared_out(setup.vocabulary(), setup.mp()) * m);
    setup.fill(places_, 4);
  }
  if (norm > 0) {
    norm_gradients_ = Tensor({norm}, dtype);
    d_summed_ = Tensor({held, m}, dtype);
  }
  norm_ = setup.norm(kNormGain0, norm_gradients_);
  micro_batches_.resize(static_cast<size_t>(setup.micro_batches()));
  for (MicroBatch& each : micro_batches_) {
    if (setup.rows_apart()) each.rows = setup.rows();
    if (norm_) each.summed = Tensor({held, m}, dtype);
  }
}

void Embedding::clear() {
  for (const TensorView& gradients : {words_.gradient, places_.gradient, norm_gradients_.view()})
    if (gradients.data() != nullptr) cpu_memory().clear(gradients.data(), gradients.bytes(), nullptr);
  norm_begun_ = false;
}

TensorView Embedding::summed(int micro_batch) const {
  const MicroBatch& m = micro_batches_[static_cast<size_t>(micro_batch)];
  return norm_ ? m.summed.view() : setup_.first(micro_batch).input();
}

TensorView Embedding::looked_up(int micro_batch) const {
  return setup_.rows_apart() ? micro_batches_[static_cast<size_t>(micro_batch)].rows.view() : summed(micro_batch);
}

void Embedding::forward(int micro_batch, std::span<const int32_t> tokens) {
  const int64_t width = setup_.rank().model_dim(), seq = setup_.layer().seq;
  const TensorView out = looked_up(micro_batch);
  const ShardRange &words = words_.axes[1], &places = places_.axes[1];
  with_element(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<int64_t>(tokens.size());
    parallel_for(count, width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = out.as<T>() + i * width;
        const int64_t token = tokens[static_cast<size_t>(i)], place = i % seq;  // a group's tokens are whole samples
        if (has(words, token))
          std::copy_n(word_rows_.as<T>() + (token - words.first) * width, width, row);
        else
          std::fill_n(row, width, T(0));
        if (has(places, place)) add_scaled(place_rows_.as<T>() + (place - places.first) * width, T(1), row, width);
      }
    });
  });
  if (setup_.mp() == 1) normalise(micro_batch);
}

void Embedding::normalise(int micro_batch) {
  if (norm_) norm_->forward(summed(micro_batch), setup_.first(micro_batch).input());
}

void Embedding::sum(int micro_batch, CommCall call) {
  setup_.add_parts(looked_up(micro_batch), summed(micro_batch), call);
  if (norm_) call.stream.launch([this, micro_batch](void*) { normalise(micro_batch); });
}

// Returns the gradient of what was summed, for the rows that the rank has.
TensorView Embedding::through_norm(int micro_batch) {
  const TensorView d = setup_.first(micro_batch).input_gradient();
  if (!norm_) return d;
  cpu_math().assign(d, d_summed_);
  norm_->backward(summed(micro_batch), d_summed_, norm_begun_ ? Into::add : Into::overwrite);
  norm_begun_ = true;
  return d_summed_;
}

void Embedding::gather(int micro_batch, CommCall call) {
  if (norm_) call.stream.launch([this, micro_batch](void*) { through_norm(micro_batch); });
  const TensorView own = norm_ ? d_summed_.view() : setup_.first(micro_batch).input_gradient();
  setup_.gather_rows(own, micro_batches_[static_cast<size_t>(micro_batch)].rows, call);
}

void Embedding::backward(int micro_batch, std::span<const int32_t> tokens) {
  const MicroBatch& m = micro_batches_[static_cast<size_t>(micro_batch)];
  const int64_t width = setup_.rank().model_dim(), seq = setup_.layer().seq;
  const TensorView d = setup_.rows_apart() ? m.rows.view() : through_norm(micro_batch);
  const auto count = static_cast<int64_t>(tokens.size());
  with_element(d.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_rows(
        count, [&](int64_t i) { return tokens[static_cast<size_t>(i)]; }, words_.axes[1], d.as<T>(),
        words_.gradient.as<T>(), width);
    if (places_.axes[1].count > 0)
      add_rows(
          count, [&](int64_t i) { return i % seq; }, places_.axes[1], d.as<T>(), places_.gradient.as<T>(), width);
  });
}

std::vector<Parameter> Embedding::parameters() const {
  std::vector<Parameter> all{words_};
  if (places_.axes[1].total > 0) all.push_back(places_);
  if (norm_)
    for (Parameter& p : norm_->parameters(norm_copies())) all.push_back(std::move(p));
  return all;
}

}  // namespace moe::model
