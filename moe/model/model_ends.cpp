#include "moe/model/model_ends.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"

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

ModelEnds::ModelEnds(LayerStack& stack, int64_t vocabulary, const LayerSeed& seed)
    : stack_(stack),
      vocabulary_(vocabulary),
      embeds_(stack.stage() == 0),
      learns_places_(embeds_ && stack.shape().shape.layer.rope_theta == 0),
      heads_(stack.stage() + 1 == stack.shape().shape.parallel.pp),
      setup_{stack.cell(stack.first_layer(), 0).shape(), seed} {
  const DType dtype = rank().dtype();
  require<Unsupported>(dtype == DType::float32 || dtype == DType::float64,
                       "a model's ends compute in float32 or float64, found {}", name_of(dtype));
  require<Unsupported>(stack.cell(stack.first_layer(), 0).memory().kind() == DeviceKind::cpu,
                       "a model's ends are on the CPU alone");
  const int64_t m = rank().model_dim(), seq = rank().shape.layer.seq, held = rank().held.count;
  tokens_ = rank().tokens.total * stack.shape().micro_batches;
  if (embeds_) {
    embedding_ = Tensor({vocabulary, m}, dtype);
    embedding_gradients_ = Tensor({(vocabulary + (learns_places_ ? seq : 0)) * m}, dtype);
    d_embedding_ = embedding_gradients_.view().part(0, {vocabulary, m});
    fill_weight(parameter(kEmbedding, embedding_, d_embedding_), 4, seed);
  }
  if (learns_places_) {
    places_ = Tensor({seq, m}, dtype);
    d_places_ = embedding_gradients_.view().part(vocabulary * m, {seq, m});
    fill_weight(parameter(kPlaces, places_, d_places_), 4, seed);
  }
  if (heads_) {
    head_ = Tensor({vocabulary, m}, dtype);
    const int64_t gains = rank().shape.layer.norm == Norm::none ? 0 : m;
    head_gradients_ = Tensor({vocabulary * m + gains}, dtype);
    d_head_ = head_gradients_.view().part(0, {vocabulary, m});
    if (gains > 0)
      setup_.weights->lend(gradient_name(kNormGain3), head_gradients_.view().part(vocabulary * m, {gains}));
    fill_weight(parameter(kHeadWeight, head_, d_head_), m, seed);
    norm_ = make_norm(setup_, kNormGain3);
  }
  micro_batches_.resize(static_cast<size_t>(stack.shape().micro_batches));
  for (MicroBatch& each : micro_batches_) {
    each.inputs.resize(static_cast<size_t>(held));
    each.targets.resize(static_cast<size_t>(held));
    each.losses.resize(static_cast<size_t>(held));
    if (!heads_) continue;
    each.normed = Tensor({held, m}, dtype);
    each.probabilities = Tensor({held, vocabulary}, dtype);
  }
}

// A step's samples are those of its first micro-batch, then of its second.
void ModelEnds::load(const SampleTokens& tokens) {
  const int64_t seq = rank().shape.layer.seq, samples = rank().tokens.total / seq;
  const ShardRange held = rank().held;
  std::vector<int32_t> text(static_cast<size_t>(seq + 1));
  for (size_t mb = 0; mb < micro_batches_.size(); ++mb)
    for (int64_t t = held.first; t < held.first + held.count; ++t) {
      const int64_t place = t % seq;
      if (t == held.first || place == 0) {
        const int64_t sample = static_cast<int64_t>(mb) * samples + t / seq;
        tokens(sample, text);
        for (const int32_t token : text)
          require<BadInput>(token >= 0 && token < vocabulary_, "sample {}: found token {}, expected 0 to {}", sample,
                            token, vocabulary_ - 1);
      }
      micro_batches_[mb].inputs[static_cast<size_t>(t - held.first)] = text[static_cast<size_t>(place)];
      micro_batches_[mb].targets[static_cast<size_t>(t - held.first)] = text[static_cast<size_t>(place + 1)];
    }
  for (const Tensor* of_end : {&embedding_gradients_, &head_gradients_})
    if (of_end->view().data() != nullptr) clear(*of_end, cpu_memory());
  norm_begun_ = false;
}

void ModelEnds::embed(int micro_batch) {
  const MicroBatch& m = of(micro_batch);
  const int64_t width = rank().model_dim(), seq = rank().shape.layer.seq;
  const TensorView out = first(micro_batch).input();
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
}

void ModelEnds::embed_backward(int micro_batch) {
  const MicroBatch& m = of(micro_batch);
  const int64_t width = rank().model_dim(), seq = rank().shape.layer.seq;
  std::vector<int32_t> places(m.inputs.size());
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int32_t>((rank().held.first + static_cast<int64_t>(i)) % seq);
  const TensorView d = first(micro_batch).input_gradient();
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

// Turns logits into probabilities. -log of the target's is read off the most probable token's, which is not small.
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
      m.losses[static_cast<size_t>(i)] = static_cast<double>(*top - row[m.targets[static_cast<size_t>(i)]]);
    }
  });
  softmax_rows(m.probabilities);
  for (size_t i = 0; i < most.size(); ++i)
    m.losses[i] -= std::log(static_cast<double>(rows[static_cast<int64_t>(i) * vocabulary_ + most[i]]));
}

void ModelEnds::head_backward(int micro_batch) {
  MicroBatch& m = of(micro_batch);
  with_element(m.normed.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* row = m.probabilities.as<T>();
    for (const int32_t target : m.targets) row[target] -= T(1), row += vocabulary_;
  });
  Math& math = cpu_math();
  math.scale(m.probabilities, 1.0 / static_cast<double>(tokens_));
  const TensorView d = last(micro_batch).output_gradient();
  math.gemm(matrix(m.probabilities), matrix(head_), matrix(d));
  math.gemm(transpose(matrix(m.probabilities)), matrix(m.normed), matrix(d_head_), Into::add);
  if (norm_) norm_->backward(last(micro_batch).output(), d, norm_begun_ ? Into::add : Into::overwrite);
  norm_begun_ = true;
}

double ModelEnds::loss(int64_t place) const {
  const int64_t seq = rank().shape.layer.seq;
  place = std::min(place, seq - 1);
  double sum = 0;
  for (const MicroBatch& m : micro_batches_)
    for (int64_t t = rank().tokens.first; t < rank().tokens.first + rank().tokens.count; ++t)
      if (t % seq >= place) sum += m.losses[static_cast<size_t>(t - rank().held.first)];
  return sum / (static_cast<double>(tokens_) * static_cast<double>(seq - place) / static_cast<double>(seq));
}

Parameter ModelEnds::parameter(std::string_view name, TensorView value, TensorView gradient) const {
  const int64_t rows = value.size(0), cols = value.size(1);
  const auto copies = static_cast<int>(rank().held.count / rank().tokens.count);
  return {std::string(name),
          {ShardRange{0, 1, 1}, {0, rows, rows}, {0, cols, cols}},
          value,
          gradient,
          SummedOver::stage,
          copies};
}

std::vector<Parameter> ModelEnds::parameters() {
  std::vector<Parameter> all = parameters(kEmbeddingLayer);
  for (Parameter& p : parameters(stack_.shape().layers)) all.push_back(std::move(p));
  return all;
}

std::vector<Parameter> ModelEnds::parameters(int layer) {
  std::vector<Parameter> all;
  if (layer != kEmbeddingLayer) {
    if (heads_) all.push_back(parameter(kHeadWeight, head_, d_head_));
    if (norm_) all.push_back(norm_->gain(static_cast<int>(rank().held.count / rank().tokens.count)));
    return all;
  }
  if (embeds_) all.push_back(parameter(kEmbedding, embedding_, d_embedding_));
  if (learns_places_) all.push_back(parameter(kPlaces, places_, d_places_));
  return all;
}

void ModelEnds::sum_gradients(int layer, CommCall call) {
  const TensorView all = layer == kEmbeddingLayer ? embedding_gradients_ : head_gradients_;
  stack_.comms().of(GroupKind::stage).allreduce(all.data(), all.elements(), all.dtype(), call);
  const auto copies = static_cast<double>(rank().held.count / rank().tokens.count);
  if (copies > 1) call.stream.launch([all, copies](void*) { cpu_math().scale(all, 1 / copies); });
}

}  // namespace moe
