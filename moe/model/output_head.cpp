#include "moe/model/output_head.h"

#include <algorithm>
#include <cmath>

#include "moe/tensor/host_copy.h"

namespace moe::model {

OutputHead::OutputHead(const EndSetup& setup, const Parameter* embedding, double counted)
    : setup_(setup), counted_(counted) {
  const DType dtype = setup.rank().dtype();
  const int64_t m = setup.rank().model_dim(), words = setup.part_of(setup.vocabulary()).count;
  const int64_t norm = is_post_norm(setup.layer().norm) ? 0 : norm_parameters(setup.layer());
  if (embedding != nullptr) {
    projection_ = *embedding;
  } else {
    projection_rows_ = setup.tensor({words, m}, dtype);
    projection_ = setup.table(setup.tied() ? kEmbedding : kHeadWeight, projection_rows_, setup.vocabulary(),
                              setup.stack().shape().layers, 0);
    setup.fill(projection_, m);
  }
  if (norm > 0) norm_gradients_ = setup.tensor({norm}, dtype);
  norm_ = setup.norm(kNormGain3, norm_gradients_);
  micro_batches_.resize(setup.micro_batches());
  for (MicroBatch& batch_state : micro_batches_) {
    if (setup.shards_rows_over_mp()) batch_state.rows = setup.rows(), batch_state.d_rows = setup.rows();
    batch_state.normed = setup.rows();
    batch_state.logits = setup.tensor({setup.tokens(), words}, dtype);
    batch_state.sums = setup.tensor({setup.mp(), setup.tokens(), kSoftmaxSums}, DType::float64);
    batch_state.targets = Array<int32_t>(setup.math().memory(), setup.tokens());
  }
}

void OutputHead::clear() {
  setup_.clear({shares_embedding() ? TensorView() : projection_.gradient, norm_gradients_});
  norm_begun_ = false;
}

void OutputHead::load(int micro_batch, std::span<const int32_t> targets) {
  require_equal(static_cast<int64_t>(targets.size()), setup_.tokens(), "targets of a micro-batch");
  state_of(micro_batch).targets.from_host(targets.data());
}

TensorView OutputHead::rows(int micro_batch) const {
  return setup_.shards_rows_over_mp() ? state_of(micro_batch).rows.view() : setup_.last(micro_batch).output();
}

TensorView OutputHead::d_rows(int micro_batch) const {
  return setup_.shards_rows_over_mp() ? state_of(micro_batch).d_rows.view()
                                      : setup_.last(micro_batch).output_gradient();
}

TensorView OutputHead::own_sums(const MicroBatch& m) const {
  const int64_t block = setup_.tokens() * kSoftmaxSums;
  return m.sums.view().part(setup_.rank().mp * block, {setup_.tokens(), kSoftmaxSums});
}

void OutputHead::gather(int micro_batch, CommCall call) {
  setup_.gather_rows(setup_.last(micro_batch).output(), rows(micro_batch), call);
}

void OutputHead::forward(int micro_batch) {
  MicroBatch& m = state_of(micro_batch);
  Math& math = setup_.math();
  const TensorView x = rows(micro_batch);
  if (norm_)
    norm_->forward(x, m.normed);
  else
    math.assign(x.flat(), m.normed.view().flat());
  math.gemm(matrix(m.normed), transpose(matrix(projection_.value)), matrix(m.logits));
  math.softmax_sums(m.logits, targets(m), own_sums(m));
}

void OutputHead::exchange_softmax_sums(int micro_batch, CommCall call) {
  const TensorView all = state_of(micro_batch).sums, own = own_sums(state_of(micro_batch));
  setup_.mp_comm().allgather(own.data(), all.data(), own.bytes(), call);
}

std::vector<double> OutputHead::losses(int micro_batch, Rows tokens) const {
  const HostCopy sums(state_of(micro_batch).sums, setup_.math().memory());
  const auto of_rank = [&](int mp, int64_t token) {
    return sums.view().as<double>() + (mp * setup_.tokens() + token) * kSoftmaxSums;
  };
  std::vector<double> losses;
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    double largest = of_rank(0, token)[0], sum = 0, target = 0;
    for (int mp = 1; mp < setup_.mp(); ++mp) largest = std::max(largest, of_rank(mp, token)[0]);
    for (int mp = 0; mp < setup_.mp(); ++mp) {
      const double* part = of_rank(mp, token);
      sum += part[1] * std::exp(part[0] - largest);
      target += part[2];  // 0 except from the rank that has the target's logit
    }
    losses.push_back(largest - target + std::log(sum));
  }
  return losses;
}

// The norm's backward is linear in its gradient, so parts go through it before they are summed.
void OutputHead::backward(int micro_batch) {
  MicroBatch& m = state_of(micro_batch);
  Math& math = setup_.math();
  math.cross_entropy_backward(m.logits, targets(m), m.sums, setup_.rank().mp, counted_);
  const TensorView d = d_rows(micro_batch);
  math.gemm(matrix(m.logits), matrix(projection_.value), matrix(d));
  math.gemm(transpose(matrix(m.logits)), matrix(m.normed), matrix(projection_.gradient), Into::add);
  if (norm_) norm_->backward(rows(micro_batch), d, norm_begun_ ? Into::add : Into::overwrite);
  norm_begun_ = true;
}

void OutputHead::sum(int micro_batch, CommCall call) {
  setup_.add_parts(d_rows(micro_batch), setup_.last(micro_batch).output_gradient(), call);
}

Tensor OutputHead::logits(int micro_batch) const {
  const MicroBatch& m = state_of(micro_batch);
  Tensor logits = setup_.tensor({setup_.tokens(), projection_.axes[1].count}, m.normed.view().dtype());
  setup_.math().gemm(matrix(m.normed), transpose(matrix(projection_.value)), matrix(logits));
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
