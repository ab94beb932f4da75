#include "moe/model/output_head.h"

#include <algorithm>
#include <cmath>

#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"

namespace moe::model {

OutputHead::OutputHead(const EndSetup& setup, const Parameter* embedding, double counted)
    : setup_(setup), counted_(counted) {
  const DType dtype = setup.rank().dtype();
  const int64_t m = setup.rank().model_dim(), words = setup.part_of(setup.vocabulary()).count;
  const int64_t norm = is_post(setup.layer().norm) ? 0 : norm_parameters(setup.layer());
  if (embedding != nullptr) {
    projection_ = *embedding;
  } else {
    projection_rows_ = Tensor({words, m}, dtype);
    projection_ = setup.table(setup.tied() ? kEmbedding : kHeadWeight, projection_rows_, setup.vocabulary(),
                              setup.stack().shape().layers, 0);
    setup.fill(projection_, m);
  }
  if (norm > 0) norm_gradients_ = Tensor({norm}, dtype);
  norm_ = setup.norm(kNormGain3, norm_gradients_);
  micro_batches_.resize(static_cast<size_t>(setup.micro_batches()));
  for (MicroBatch& each : micro_batches_) {
    if (setup.rows_apart()) each.rows = setup.rows(), each.d_rows = setup.rows();
    each.normed = setup.rows();
    each.probabilities = Tensor({setup.tokens(), words}, dtype);
    each.sums = Tensor({setup.mp(), setup.tokens(), kSoftmaxSums}, DType::float64);
  }
}

void OutputHead::clear() {
  for (const TensorView& gradients : {shares_embedding() ? TensorView() : projection_.gradient, norm_gradients_.view()})
    if (gradients.data() != nullptr) cpu_memory().clear(gradients.data(), gradients.bytes(), nullptr);
  norm_begun_ = false;
}

TensorView OutputHead::rows(int micro_batch) const {
  return setup_.rows_apart() ? of(micro_batch).rows.view() : setup_.last(micro_batch).output();
}

TensorView OutputHead::d_rows(int micro_batch) const {
  return setup_.rows_apart() ? of(micro_batch).d_rows.view() : setup_.last(micro_batch).output_gradient();
}

double* OutputHead::sums(const MicroBatch& m, int mp, int64_t token) const {
  return m.sums.as<double>() + (mp * setup_.tokens() + token) * kSoftmaxSums;
}

void OutputHead::gather(int micro_batch, CommCall call) {
  setup_.gather_rows(setup_.last(micro_batch).output(), rows(micro_batch), call);
}

void OutputHead::forward(int micro_batch, std::span<const int32_t> targets) {
  MicroBatch& m = of(micro_batch);
  const TensorView x = rows(micro_batch);
  if (norm_)
    norm_->forward(x, m.normed);
  else
    cpu_math().assign(x.flat(), m.normed.view().flat());
  cpu_math().gemm(matrix(m.normed), transpose(matrix(projection_.value)), matrix(m.probabilities));
  with_element(x.dtype(), [&](auto zero) { add_up<decltype(zero)>(m, targets); });
}

// Turns logits into probabilities among this rank's part of the vocabulary. The most probable token's is the inverse of
// the sum of exponentials over the largest logit.
template <class T>
void OutputHead::add_up(MicroBatch& m, std::span<const int32_t> targets) {
  T* rows = m.probabilities.as<T>();
  const ShardRange& words = projection_.axes[1];
  const int mp = setup_.rank().mp;
  std::vector<int64_t> most(targets.size());
  parallel_for(setup_.tokens(), words.count * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = rows + i * words.count;
      const T* top = std::max_element(row, row + words.count);
      most[static_cast<size_t>(i)] = top - row;
      const int64_t target = targets[static_cast<size_t>(i)] - words.first;
      double* own = sums(m, mp, i);
      own[0] = static_cast<double>(*top);
      own[2] = target >= 0 && target < words.count ? static_cast<double>(row[target]) : 0;
    }
  });
  softmax_rows(m.probabilities);
  for (int64_t i = 0; i < setup_.tokens(); ++i)
    sums(m, mp, i)[1] = 1 / static_cast<double>(rows[i * words.count + most[static_cast<size_t>(i)]]);
}

void OutputHead::share_sums(int micro_batch, CommCall call) {
  const MicroBatch& m = of(micro_batch);
  const int64_t block = setup_.tokens() * kSoftmaxSums * int64_t{sizeof(double)};
  setup_.mp_comm().allgather(sums(m, setup_.rank().mp, 0), m.sums.view().data(), block, call);
}

OutputHead::Softmax OutputHead::softmax(const MicroBatch& m, int64_t token) const {
  Softmax all{.largest = sums(m, 0, token)[0]};
  for (int mp = 1; mp < setup_.mp(); ++mp) all.largest = std::max(all.largest, sums(m, mp, token)[0]);
  for (int mp = 0; mp < setup_.mp(); ++mp) {
    const double* part = sums(m, mp, token);
    all.sum += part[1] * std::exp(part[0] - all.largest);
    all.target += part[2];  // of the one rank that has it
  }
  return all;
}

double OutputHead::loss(int micro_batch, int64_t token) const {
  const Softmax all = softmax(of(micro_batch), token);
  return all.largest - all.target + std::log(all.sum);
}

// Turns probabilities among the own part into the gradient of the logits: those among all, less 1 for the target.
template <class T>
void OutputHead::differentiate(MicroBatch& m, std::span<const int32_t> targets) {
  const ShardRange& words = projection_.axes[1];
  const int mp = setup_.rank().mp;
  parallel_for(setup_.tokens(), words.count * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = m.probabilities.as<T>() + i * words.count;
      if (targets[static_cast<size_t>(i)] < 0) {
        std::fill_n(row, words.count, T(0));
        continue;
      }
      const Softmax all = softmax(m, i);
      const double* own = sums(m, mp, i);
      const auto share = static_cast<T>(own[1] * std::exp(own[0] - all.largest) / all.sum / counted_);
      for (int64_t j = 0; j < words.count; ++j) row[j] *= share;
      const int64_t target = targets[static_cast<size_t>(i)] - words.first;
      if (target >= 0 && target < words.count) row[target] -= static_cast<T>(1 / counted_);
    }
  });
}

// The norm's backward is linear in what comes in: parts pass it before they are summed.
void OutputHead::backward(int micro_batch, std::span<const int32_t> targets) {
  MicroBatch& m = of(micro_batch);
  with_element(m.normed.view().dtype(), [&](auto zero) { differentiate<decltype(zero)>(m, targets); });
  Math& math = cpu_math();
  const TensorView d = d_rows(micro_batch);
  math.gemm(matrix(m.probabilities), matrix(projection_.value), matrix(d));
  math.gemm(transpose(matrix(m.probabilities)), matrix(m.normed), matrix(projection_.gradient), Into::add);
  if (norm_) norm_->backward(rows(micro_batch), d, norm_begun_ ? Into::add : Into::overwrite);
  norm_begun_ = true;
}

void OutputHead::sum(int micro_batch, CommCall call) {
  setup_.add_parts(d_rows(micro_batch), setup_.last(micro_batch).output_gradient(), call);
}

Tensor OutputHead::logits(int micro_batch) const {
  const MicroBatch& m = of(micro_batch);
  Tensor logits({setup_.tokens(), projection_.axes[1].count}, m.normed.view().dtype());
  cpu_math().gemm(matrix(m.normed), transpose(matrix(projection_.value)), matrix(logits));
  return logits;
}

std::vector<Parameter> OutputHead::parameters() const {
  std::vector<Parameter> all;
  if (!shares_embedding()) all.push_back(projection_);
  if (norm_)
    for (Parameter& p : norm_->parameters(1)) all.push_back(std::move(p));
  return all;
}

}  // namespace moe::model
