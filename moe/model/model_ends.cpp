#include "moe/model/model_ends.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/plan/volumes.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"
#include "moe/train/masked_tokens.h"

namespace moe {
namespace {

void clear(TensorView t, MemorySpace& memory) { memory.clear(t.data(), t.bytes(), nullptr); }

// Threads share out the columns: several of `from` may be added to one row.
template <class T>
void add_rows(std::span<const int32_t> rows, const T* from, T* to, int64_t width) {
  parallel_for(width, static_cast<int64_t>(rows.size()) * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    const T* row = from;
    for (const int32_t at : rows) {
      for (int64_t j = begin; j < end; ++j) to[at * width + j] += row[j];
      row += width;
    }
  });
}

}  // namespace

ModelEnds::ModelEnds(LayerStack& stack, int64_t vocabulary, bool tied, const LayerSeed& seed)
    : stack_(stack),
      vocabulary_(vocabulary),
      embeds_(stack.stage() == 0),
      learns_places_(embeds_ && stack.shape().shape.layer.rope_theta == 0),
      heads_(stack.stage() + 1 == stack.shape().shape.parallel.pp),
      tied_(tied),
      setup_{stack.cell(stack.first_layer(), 0).shape(), seed} {
  const DType dtype = rank().dtype();
  require<Unsupported>(dtype == DType::float32 || dtype == DType::float64,
                       "a model's ends compute in float32 or float64, found {}", name_of(dtype));
  require<Unsupported>(stack.cell(stack.first_layer(), 0).memory().kind() == DeviceKind::cpu,
                       "a model's ends are on the CPU alone");
  const LayerShape& layer = rank().shape.layer;
  const int64_t held = rank().held.count, m = rank().model_dim();
  counted_ = rank().tokens.total * stack.shape().micro_batches;
  if (!layer.causal) counted_ = counted_ / layer.seq * masked_places(layer.seq);
  if (embeds_) make_embedding();
  if (heads_) make_head();
  if (first_norm_) d_embedded_ = Tensor({held, m}, dtype);
  micro_batches_.resize(static_cast<size_t>(stack.shape().micro_batches));
  for (MicroBatch& each : micro_batches_) {
    each.inputs.resize(static_cast<size_t>(held));
    each.targets.resize(static_cast<size_t>(held));
    each.losses.resize(static_cast<size_t>(held));
    if (first_norm_) each.embedded = Tensor({held, m}, dtype);
    if (!heads_) continue;
    each.normed = Tensor({held, m}, dtype);
    each.probabilities = Tensor({held, vocabulary}, dtype);
  }
}

void ModelEnds::make_embedding() {
  const LayerShape& layer = rank().shape.layer;
  const int64_t m = rank().model_dim(), places = learns_places_ ? layer.seq : 0;
  const int64_t norm = is_post(layer.norm) ? norm_parameters(layer) : 0;
  embedding_ = Tensor({vocabulary_, m}, rank().dtype());
  embedding_gradients_ = Tensor({(vocabulary_ + places) * m + norm}, rank().dtype());
  d_embedding_ = embedding_gradients_.view().part(0, {vocabulary_, m});
  fill_weight(parameter(kEmbedding, embedding_, d_embedding_), tied_ ? m : 4, setup_.seed);
  if (learns_places_) {
    places_ = Tensor({places, m}, rank().dtype());
    d_places_ = embedding_gradients_.view().part(vocabulary_ * m, {places, m});
    fill_weight(parameter(kPlaces, places_, d_places_), 4, setup_.seed);
  }
  if (norm > 0)
    first_norm_ = end_norm(kNormGain0, embedding_gradients_.view().part((vocabulary_ + places) * m, {norm}));
}

void ModelEnds::make_head() {
  const LayerShape& layer = rank().shape.layer;
  const int64_t m = rank().model_dim(), norm = is_post(layer.norm) ? 0 : norm_parameters(layer);
  const int64_t own = tied_ && embeds_ ? 0 : vocabulary_ * m;
  head_gradients_ = Tensor({own + norm}, rank().dtype());
  if (own > 0) {
    own_head_ = Tensor({vocabulary_, m}, rank().dtype());
    d_head_ = head_gradients_.view().part(0, {vocabulary_, m});
    fill_weight(parameter(tied_ ? kEmbedding : kHeadWeight, own_head_, d_head_), m, setup_.seed);
  } else {
    d_head_ = d_embedding_;
  }
  head_ = own > 0 ? own_head_.view() : embedding_.view();
  if (norm > 0) norm_ = end_norm(kNormGain3, head_gradients_.view().part(own, {norm}));
}

// Makes an end's norm. `gradients`: of the gain, and behind it of the bias, if there is one.
std::unique_ptr<RowNorm> ModelEnds::end_norm(std::string_view gain, TensorView gradients) const {
  const int64_t m = rank().model_dim();
  setup_.weights->lend(gradient_name(gain), gradients.part(0, {m}));
  if (gradients.elements() > m)
    setup_.weights->lend(gradient_name(fmt::format("{}{}", gain, kNormBias)), gradients.part(m, {m}));
  return make_norm(setup_, gain);
}

// A step's samples are those of its first micro-batch, then of its second.
void ModelEnds::load(const SampleTokens& text) {
  const int64_t seq = rank().shape.layer.seq, samples = rank().tokens.total / seq;
  const ShardRange held = rank().held;
  std::vector<int32_t> tokens(static_cast<size_t>(seq)), targets(tokens.size());
  for (size_t mb = 0; mb < micro_batches_.size(); ++mb)
    for (int64_t t = held.first; t < held.first + held.count; ++t) {
      const auto place = static_cast<size_t>(t % seq);
      if (t == held.first || place == 0) {
        const int64_t sample = static_cast<int64_t>(mb) * samples + t / seq;
        text(sample, tokens, targets);
        for (size_t i = 0; i < tokens.size(); ++i)
          for (const int32_t token : {tokens[i], std::max(targets[i], 0)})
            require<BadInput>(token >= 0 && token < vocabulary_, "sample {}: found token {}, expected 0 to {}", sample,
                              token, vocabulary_ - 1);
      }
      micro_batches_[mb].inputs[static_cast<size_t>(t - held.first)] = tokens[place];
      micro_batches_[mb].targets[static_cast<size_t>(t - held.first)] = targets[place];
    }
  for (const Tensor* of_end : {&embedding_gradients_, &head_gradients_})
    if (of_end->view().data() != nullptr) clear(*of_end, cpu_memory());
  first_begun_ = norm_begun_ = false;
}

void ModelEnds::embed(int micro_batch) {
  const MicroBatch& m = of(micro_batch);
  const int64_t width = rank().model_dim(), seq = rank().shape.layer.seq;
  const TensorView input = first(micro_batch).input(), out = first_norm_ ? m.embedded.view() : input;
  with_element(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto tokens = static_cast<int64_t>(m.inputs.size());
    parallel_for(tokens, width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row =
            std::copy_n(embedding_.as<T>() + m.inputs[static_cast<size_t>(i)] * width, width, out.as<T>() + i * width) -
            width;
        if (learns_places_) add_scaled(places_.as<T>() + (rank().held.first + i) % seq * width, T(1), row, width);
      }
    });
  });
  if (first_norm_) first_norm_->forward(out, input);
}

void ModelEnds::embed_backward(int micro_batch) {
  const MicroBatch& m = of(micro_batch);
  const int64_t width = rank().model_dim(), seq = rank().shape.layer.seq;
  std::vector<int32_t> places(m.inputs.size());
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int32_t>((rank().held.first + static_cast<int64_t>(i)) % seq);
  TensorView d = first(micro_batch).input_gradient();
  if (first_norm_) {
    cpu_math().assign(d, d_embedded_);
    d = d_embedded_;
    first_norm_->backward(m.embedded, d, first_begun_ ? Into::add : Into::overwrite);
    first_begun_ = true;
  }
  with_element(d.dtype(), [&](auto zero) {
    using T = decltype(zero);
    add_rows<T>(m.inputs, d.as<T>(), d_embedding_.as<T>(), width);
    if (learns_places_) add_rows<T>(places, d.as<T>(), d_places_.as<T>(), width);
  });
}

void ModelEnds::head(int micro_batch) {
  MicroBatch& m = of(micro_batch);
  const TensorView out = last(micro_batch).output();
  if (norm_)
    norm_->forward(out, m.normed);
  else
    cpu_math().assign(out.flat(), m.normed.view().flat());
  cpu_math().gemm(matrix(m.normed), transpose(matrix(head_)), matrix(m.probabilities));
  with_element(out.dtype(), [&](auto zero) { add_losses<decltype(zero)>(m); });
}

Tensor ModelEnds::logits(int micro_batch) const {
  const MicroBatch& m = of(micro_batch);
  Tensor logits({m.normed.view().size(0), vocabulary_}, m.normed.view().dtype());
  cpu_math().gemm(matrix(m.normed), transpose(matrix(head_)), matrix(logits));
  return logits;
}

// Turns logits into probabilities. -log of the target's is read off the most probable token's, which is not small;
// without a target it is 0.
template <class T>
void ModelEnds::add_losses(MicroBatch& m) {
  T* rows = m.probabilities.as<T>();
  const auto tokens = static_cast<int64_t>(m.targets.size());
  std::vector<int64_t> most(m.targets.size());
  parallel_for(tokens, vocabulary_ * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = rows + i * vocabulary_;
      const T* top = std::max_element(row, row + vocabulary_);
      most[static_cast<size_t>(i)] = top - row;
      const int32_t target = m.targets[static_cast<size_t>(i)];
      m.losses[static_cast<size_t>(i)] = target < 0 ? 0 : static_cast<double>(*top - row[target]);
    }
  });
  softmax_rows(m.probabilities);
  for (size_t i = 0; i < most.size(); ++i)
    if (m.targets[i] >= 0)
      m.losses[i] -= std::log(static_cast<double>(rows[static_cast<int64_t>(i) * vocabulary_ + most[i]]));
}

void ModelEnds::head_backward(int micro_batch) {
  MicroBatch& m = of(micro_batch);
  with_element(m.normed.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* row = m.probabilities.as<T>();
    for (const int32_t target : m.targets) {
      if (target < 0)
        std::fill_n(row, vocabulary_, T(0));
      else
        row[target] -= T(1);
      row += vocabulary_;
    }
  });
  Math& math = cpu_math();
  math.scale(m.probabilities, 1.0 / static_cast<double>(counted_));
  const TensorView d = last(micro_batch).output_gradient();
  math.gemm(matrix(m.probabilities), matrix(head_), matrix(d));
  math.gemm(transpose(matrix(m.probabilities)), matrix(m.normed), matrix(d_head_), Into::add);
  if (norm_) norm_->backward(last(micro_batch).output(), d, norm_begun_ ? Into::add : Into::overwrite);
  norm_begun_ = true;
}

double ModelEnds::loss(int64_t place) const {
  const int64_t seq = rank().shape.layer.seq;
  place = rank().shape.layer.causal ? std::min(place, seq - 1) : 0;
  double sum = 0;
  for (const MicroBatch& m : micro_batches_)
    for (int64_t t = rank().tokens.first; t < rank().tokens.first + rank().tokens.count; ++t)
      if (t % seq >= place) sum += m.losses[static_cast<size_t>(t - rank().held.first)];
  return sum / (static_cast<double>(counted_) * static_cast<double>(seq - place) / static_cast<double>(seq));
}

Parameter ModelEnds::parameter(std::string_view name, TensorView value, TensorView gradient) const {
  const int64_t rows = value.size(0), cols = value.size(1);
  return {
      std::string(name), {ShardRange{0, 1, 1}, {0, rows, rows}, {0, cols, cols}}, value, gradient, SummedOver::stage,
      copies()};
}

std::vector<Parameter> ModelEnds::parameters() {
  std::vector<Parameter> all = parameters(kEmbeddingLayer);
  for (Parameter& p : parameters(stack_.shape().layers)) all.push_back(std::move(p));
  return all;
}

std::vector<Parameter> ModelEnds::parameters(int layer) {
  std::vector<Parameter> all;
  const auto add = [&](const std::unique_ptr<RowNorm>& norm) {
    if (norm == nullptr) return;
    for (Parameter& p : norm->parameters(copies())) all.push_back(std::move(p));
  };
  if (layer != kEmbeddingLayer) {
    if (heads_ && !(tied_ && embeds_)) all.push_back(parameter(tied_ ? kEmbedding : kHeadWeight, head_, d_head_));
    add(norm_);
    return all;
  }
  if (embeds_) all.push_back(parameter(kEmbedding, embedding_, d_embedding_));
  if (learns_places_) all.push_back(parameter(kPlaces, places_, d_places_));
  add(first_norm_);
  return all;
}

std::optional<TensorView> ModelEnds::tied_gradient() const {
  if (!tied_ || embeds_ == heads_) return std::nullopt;
  return embeds_ ? d_embedding_ : d_head_;
}

void ModelEnds::sum_gradients(int layer, CommCall call) {
  const TensorView all = layer == kEmbeddingLayer ? embedding_gradients_ : head_gradients_;
  if (all.elements() == 0) return;  // a tied head without a norm
  stack_.comms().of(GroupKind::stage).allreduce(all.data(), all.elements(), all.dtype(), call);
  if (copies() > 1) call.stream.launch([all, by = 1.0 / copies()](void*) { cpu_math().scale(all, by); });
}

}  // namespace moe
