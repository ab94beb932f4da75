#include "moe/model/embedding.h"

namespace moe::model {
Embedding::Embedding(const EndSetup& setup) : setup_(setup) {
  const LayerShape& layer = setup.layer();
  const DType dtype = setup.rank().dtype();
  const int64_t m = setup.rank().model_dim(), places = layer.rope_theta == 0 ? layer.seq : 0;
  const int64_t held = setup.rank().held_tokens.count, norm = is_post_norm(layer.norm) ? norm_parameters(layer) : 0;
  word_rows_ = setup.tensor({setup.part_of(setup.vocabulary()).count, m}, dtype);
  words_ = setup.table(kEmbedding, word_rows_, setup.vocabulary(), kEmbeddingLayer, 0);
  setup.fill(words_, setup.tied() ? m : 4);
  MemorySpace& memory = setup.math().memory();
  if (places > 0) {
    place_rows_ = setup.tensor({setup.part_of(places).count, m}, dtype);
    places_ = setup.table(kPositionEmbedding, place_rows_, places, kEmbeddingLayer,
                          padded_share(setup.vocabulary(), setup.mp()) * m);
    setup.fill(places_, 4);
    std::vector<int32_t> place_of(setup.tokens());
    const int64_t first = setup.rank().mp_group().first;
    for (int part = 0; part < setup.parts(); ++part) {
      const LayerCase of_part = setup.part(part);
      for (size_t i = 0; i < place_of.size(); ++i)
        place_of[i] = static_cast<int32_t>(sample_order_index(of_part, first + static_cast<int64_t>(i)) % places);
      places_of_.emplace_back(setup.tokens(), places_.axes[1], memory).set(place_of);
    }
  }
  if (norm > 0) {
    norm_gradients_ = setup.tensor({norm}, dtype);
    d_summed_ = setup.tensor({held, m}, dtype);
  }
  norm_ = setup.norm(kNormGain0, norm_gradients_);
  for (int i = 0; i < setup.micro_batches(); ++i) {
    micro_batches_.push_back({{}, {}, TableTokens(setup.tokens(), words_.axes[1], memory)});
    MicroBatch& batch_state = micro_batches_.back();
    if (setup.shards_rows_over_mp()) batch_state.rows = setup.rows();
    if (norm_) batch_state.summed = setup.tensor({held, m}, dtype);
  }
}

void Embedding::clear() {
  setup_.clear({words_.gradient, places_.gradient, norm_gradients_});
  norm_begun_ = false;
}

void Embedding::load(int micro_batch, std::span<const int32_t> tokens) { state_of(micro_batch).words.set(tokens); }

TensorView Embedding::summed(int micro_batch) const {
  return norm_ ? state_of(micro_batch).summed.view() : setup_.first(micro_batch).input();
}

TensorView Embedding::looked_up(int micro_batch) const {
  return setup_.shards_rows_over_mp() ? state_of(micro_batch).rows.view() : summed(micro_batch);
}

void Embedding::forward(int micro_batch) {
  const TensorView out = looked_up(micro_batch);
  setup_.math().look_up(word_rows_, state_of(micro_batch).words.view(), out, Into::overwrite);
  if (const TableTokens* places = places_of(micro_batch))
    setup_.math().look_up(place_rows_, places->view(), out, Into::add);
  if (setup_.mp() == 1) normalise(micro_batch);
}

void Embedding::normalise(int micro_batch) {
  if (norm_) norm_->forward(summed(micro_batch), setup_.first(micro_batch).input());
}

void Embedding::sum(int micro_batch, CommCall call) {
  setup_.add_parts(looked_up(micro_batch), summed(micro_batch), call);
  if (!norm_) return;
  call.stream.launch([this, micro_batch](void* native) {
    setup_.math().use(native);
    normalise(micro_batch);
  });
}

// Returns the gradient of the summed embeddings for this rank's rows, after the backward of the norm if there is one.
TensorView Embedding::through_norm(int micro_batch) {
  const TensorView d = setup_.first(micro_batch).input_gradient();
  if (!norm_) return d;
  setup_.math().assign(d, d_summed_);
  norm_->backward(summed(micro_batch), d_summed_, norm_begun_ ? Into::add : Into::overwrite);
  norm_begun_ = true;
  return d_summed_;
}

void Embedding::gather(int micro_batch, CommCall call) {
  if (norm_)
    call.stream.launch([this, micro_batch](void* native) {
      setup_.math().use(native);
      through_norm(micro_batch);
    });
  const TensorView own = norm_ ? d_summed_.view() : setup_.first(micro_batch).input_gradient();
  setup_.gather_rows(own, state_of(micro_batch).rows, call);
}

void Embedding::backward(int micro_batch) {
  const TensorView d = setup_.shards_rows_over_mp() ? state_of(micro_batch).rows.view() : through_norm(micro_batch);
  setup_.math().add_to_rows(d, state_of(micro_batch).words.view(), words_.gradient);
  if (const TableTokens* places = places_of(micro_batch))
    setup_.math().add_to_rows(d, places->view(), places_.gradient);
}

std::vector<Parameter> Embedding::parameters() const {
  std::vector<Parameter> all{words_};
  if (places_.axes[1].total > 0) all.push_back(places_);
  if (norm_)
    for (Parameter& p : norm_->parameters(norm_copies())) all.push_back(std::move(p));
  return all;
}

}  // namespace moe::model
