#include "moe/model/model_ends.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/train/token_source.h"

namespace moe {

ModelEnds::ModelEnds(LayerStack& stack, int64_t vocabulary, bool tied, const LayerSeed& seed)
    : setup_(stack, vocabulary, tied, seed), texts_(static_cast<size_t>(setup_.micro_batches())) {
  if (stack.stage() == 0) embedding_.emplace(setup_);
  if (stack.stage() + 1 == stack.shape().shape.parallel.pp)
    head_.emplace(setup_, tied && embedding_ ? &embedding_->words() : nullptr, static_cast<double>(counted()));
  for (Text& text : texts_) {
    text.inputs.resize(setup_.tokens());
    text.targets.resize(text.inputs.size());
  }
}

// Returns the number of targets in a step.
int64_t ModelEnds::counted() const {
  const int64_t tokens = rank().tokens.total * setup_.micro_batches(), seq = setup_.layer().seq;
  return setup_.layer().causal ? tokens : tokens / seq * masked_places(seq);
}

void ModelEnds::read_sample(const SampleTokens& text, int64_t sample, std::span<int32_t> tokens,
                            std::span<int32_t> targets) const {
  text(sample, tokens, targets);
  for (size_t i = 0; i < tokens.size(); ++i)
    for (const int32_t token : {tokens[i], std::max(targets[i], 0)})
      require<BadInput>(token >= 0 && token < vocabulary(), "sample {}: found token {}, expected 0 to {}", sample,
                        token, vocabulary() - 1);
}

// A step's samples are numbered in the order of the micro-batches that contain them.
void ModelEnds::load(const SampleTokens& text) {
  const auto seq = static_cast<size_t>(setup_.layer().seq);
  const int64_t parts = setup_.layer().parts, first = rank().mp_group().first;
  const int64_t samples = rank().tokens.total * parts / setup_.layer().seq;
  std::vector<int32_t> sample_tokens(seq), sample_targets(seq);
  for (size_t mb = 0; mb < texts_.size(); ++mb) {
    const LayerCase part = setup_.part(static_cast<int>(mb));
    const int64_t before = static_cast<int64_t>(mb) / parts * samples;
    int64_t read = -1;
    for (size_t own = 0; own < texts_[mb].inputs.size(); ++own) {
      const int64_t token = sample_order_index(part, first + static_cast<int64_t>(own)),
                    sample = token / setup_.layer().seq;
      if (sample != read) read_sample(text, before + sample, sample_tokens, sample_targets);
      read = sample;
      texts_[mb].inputs[own] = sample_tokens[token % seq];
      texts_[mb].targets[own] = sample_targets[token % seq];
    }
  }
  if (embedding_) embedding_->clear();
  if (head_) head_->clear();
  for (int mb = 0; mb < setup_.micro_batches(); ++mb) {  // blocking, so the zeros above are done when streams start
    if (embedding_) embedding_->load(mb, inputs(mb));
    if (head_) head_->load(mb, targets(mb));
  }
}

void ModelEnds::issue(const Task& task, CommCall call) {
  const int micro_batch = task.micro_batch;
  const bool embeds = task.layer == kEmbeddingLayer;
  switch (task.kind) {
    case TaskKind::embed:
    case TaskKind::head:
      return call.stream.launch([this, micro_batch, kind = task.kind, phase = task.phase](void* native) {
        setup_.math().use(native);
        compute(kind, phase, micro_batch);
      });
    case TaskKind::end_allgather:
      return embeds ? embedding_->gather(micro_batch, call) : head_->gather(micro_batch, call);
    case TaskKind::softmax_sums:
      return head_->exchange_softmax_sums(micro_batch, call);
    default:  // a sum over MP
      return embeds ? embedding_->sum(micro_batch, call) : head_->sum(micro_batch, call);
  }
}

void ModelEnds::compute(TaskKind kind, Phase phase, int micro_batch) {
  const bool forward = phase == Phase::forward, embeds = kind == TaskKind::embed;
  if (embeds && forward) embedding_->forward(micro_batch);
  if (embeds && !forward) embedding_->backward(micro_batch);
  if (!embeds && forward) head_->forward(micro_batch);
  if (!embeds && !forward) head_->backward(micro_batch);
}

// For the head's norm each MP rank has only a part of every token's gradient, so the sum counts no token twice.
void ModelEnds::sum_norm(int layer, CommCall call) {
  const bool embeds = layer == kEmbeddingLayer;
  const TensorView all = embeds ? embedding_->norm_gradients() : head_->norm_gradients();
  if (all.data() == nullptr) return;
  setup_.stack().comms().communicator(GroupKind::stage).allreduce(all.data(), all.elements(), all.dtype(), call);
  const int copies = embeds ? embedding_->norm_copies() : 1;
  if (copies == 1) return;
  call.stream.launch([&math = setup_.math(), all, by = 1.0 / copies](void* native) {
    math.use(native);
    math.scale(all, by);
  });
}

double ModelEnds::loss(int64_t place) const {
  const int64_t seq = setup_.layer().seq, first = rank().tokens.first - rank().mp_group().first;
  place = setup_.layer().causal ? std::min(place, seq - 1) : 0;
  double sum = 0;
  for (int mb = 0; mb < setup_.micro_batches(); ++mb) {
    const LayerCase part = setup_.part(mb);
    const std::vector<double> losses = head_->losses(mb, {first, first + rank().tokens.count});
    for (int64_t t = first; t < first + rank().tokens.count; ++t)
      if (sample_order_index(part, rank().mp_group().first + t) % seq >= place && targets(mb)[t] >= 0)
        sum += losses[t - first];
  }
  return sum / (static_cast<double>(counted()) * static_cast<double>(seq - place) / static_cast<double>(seq));
}

std::vector<Parameter> ModelEnds::parameters(int layer) const {
  if (layer == kEmbeddingLayer) return embedding_ ? embedding_->parameters() : std::vector<Parameter>();
  return head_ ? head_->parameters() : std::vector<Parameter>();
}

std::vector<Parameter> ModelEnds::parameters() const {
  std::vector<Parameter> all = parameters(kEmbeddingLayer);
  for (Parameter& p : parameters(setup_.stack().shape().layers)) all.push_back(std::move(p));
  return all;
}

std::optional<TensorView> ModelEnds::tied_gradient() const {
  if (!tied() || embedding_.has_value() == head_.has_value()) return std::nullopt;
  return embedding_ ? embedding_->words().gradient : head_->projection().gradient;
}

}  // namespace moe
