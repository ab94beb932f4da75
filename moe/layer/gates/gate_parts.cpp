#include "moe/layer/gates/gate_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moe {

template <class T>
SoftmaxScores<T>::SoftmaxScores(const RankShape& rank)
    : tokens_(rank.gated_tokens()),
      experts_(rank.experts.total),
      group_tokens_(rank.tokens.count),
      own_group_(rank.own_group),
      losses_(rank),
      probabilities_({tokens_, experts_}, rank.dtype()),
      log_sums_(static_cast<size_t>(tokens_)),
      statistics_(losses_.make_statistics()) {}

template <class T>
void SoftmaxScores<T>::forward(const T* logits, int64_t stride) {
  T* p = probabilities_.as<T>();
  for (T& log_sum : log_sums_) {
    const T most = *std::max_element(logits, logits + experts_);
    T sum = 0;
    for (int64_t e = 0; e < experts_; ++e) sum += p[e] = std::exp(logits[e] - most);
    for (int64_t e = 0; e < experts_; ++e) p[e] /= sum;
    log_sum = most + std::log(sum);
    logits += stride;
    p += experts_;
  }
}

template <class T>
void SoftmaxScores<T>::weigh(Routing& routing) const {
  T* weight = routing.weight.as<T>();
  for (size_t pair = 0; pair < routing.expert.size(); ++pair) {
    const int32_t expert = routing.expert[pair];
    weight[pair] = expert < 0 ? T(0) : probabilities(static_cast<int64_t>(pair) / routing.choices)[expert];
  }
}

template <class T>
void SoftmaxScores<T>::count(const Routing& routing) {
  if (!losses()) return;
  double *first = sums(), *probability = first + experts_, *squares = probability + experts_;
  std::fill_n(first, 2 * experts_ + 1, 0.0);
  for (int64_t t = own_group_ * group_tokens_; t < (own_group_ + 1) * group_tokens_; ++t) {
    if (losses_.balances()) ++first[routing.expert[t * routing.choices]];
    for (int64_t e = 0; e < experts_; ++e) probability[e] += static_cast<double>(probabilities(t)[e]);
    const auto log_sum = static_cast<double>(log_sums_[t]);
    *squares += log_sum * log_sum;
  }
}

template <class T>
void SoftmaxScores<T>::backward(const Routing& routing, const T* dw, T* d, int64_t stride) const {
  const int32_t* expert = routing.expert.data();
  for (int64_t t = 0; t < tokens_; ++t, d += stride) {
    const T* p = probabilities(t);
    T mean = 0;
    for (int64_t c = 0; c < routing.choices; ++c)
      if (expert[c] >= 0) mean += dw[c] * p[expert[c]];
    for (int64_t e = 0; e < experts_; ++e) d[e] = -mean * p[e];
    for (int64_t c = 0; c < routing.choices; ++c)
      if (expert[c] >= 0) d[expert[c]] += dw[c] * p[expert[c]];
    expert += routing.choices;
    dw += routing.choices;
  }
}

template <class T>
void SoftmaxScores<T>::add_losses(double share, T* d, int64_t stride) const {
  if (!losses()) return;
  std::vector<T> slope(experts_);  // slope of the balance loss in each probability
  for (size_t e = 0; e < slope.size(); ++e) slope[e] = static_cast<T>(losses_.balance_slope(share) * sums()[e]);
  for (int64_t t = 0; t < tokens_; ++t, d += stride) {
    const T* p = probabilities(t);
    T mean = 0;
    for (size_t e = 0; e < slope.size(); ++e) mean += p[e] * slope[e];
    const T z = static_cast<T>(losses_.z_slope(share)) * log_sums_[t];
    for (size_t e = 0; e < slope.size(); ++e) d[e] += p[e] * (slope[e] - mean + z);
  }
}

template class SoftmaxScores<float>;
template class SoftmaxScores<double>;

GateProjection::GateProjection(const PartSetup& setup, int64_t width) : math_(setup.math), memory_(setup.memory) {
  const RankShape& rank = setup.rank;
  const int64_t tokens = rank.gated_tokens(), m = rank.model_dim();
  const DType dtype = accumulation_type(rank.dtype());
  weights_ = setup.weight("gate projection", {width, m}, dtype);
  d_weights_ = setup.weight("gate projection's gradient", {width, m}, dtype);
  const auto make = [&](Lifetime lifetime, std::string_view name, int64_t columns) {
    return memory_.store(lifetime).tensor(name, {tokens, columns}, dtype, math_.memory());
  };
  products_ = make(Lifetime::kept, "gate products", width);
  d_products_ = make(Lifetime::dense_backward, "gate products", width);
  if (dtype == rank.dtype()) return;
  wide_ = {make(Lifetime::dense_forward, "widened", m), make(Lifetime::dense_backward, "widened", m)};
}

TensorView GateProjection::widened(TensorView t, Phase phase) const {
  if (t.dtype() == weights_.view().dtype()) return t;
  const TensorView wide = wide_[phase];
  math_.convert(t, wide);
  return wide;
}

void GateProjection::forward(TensorView hidden) const {
  math_.gemm(matrix(widened(hidden, Phase::forward)), transpose(matrix(weights_)), matrix(products_));
}

void GateProjection::backward(const GateBackward& pass) const {
  math_.gemm(transpose(matrix(d_products_)), matrix(widened(pass.hidden, Phase::backward)), matrix(d_weights_),
             pass.into);
  const TensorView sum = widened(pass.d_hidden, Phase::backward);
  math_.gemm(matrix(d_products_), matrix(weights_), matrix(sum), Into::add);
  if (sum.data() != pass.d_hidden.data()) math_.convert(sum, pass.d_hidden);
}

Parameter GateProjection::weight(std::string_view name, int64_t first, int64_t count) const {
  const int64_t m = weights_.view().size(1);
  const auto rows = [&](TensorView t) { return t.part(first * m, {1, count, m}); };
  return {std::string(name),
          {ShardRange{0, 1, 1}, {0, count, count}, {0, m, m}},
          rows(weights_),
          rows(d_weights_),
          SummedOver::stage};
}

namespace {

// Finds the k best. NaNs are never moved up, so that every slot holds some expert, each expert once.
template <class T>
void choose(const T* logits, int64_t experts, int32_t* best, int64_t k) {
  for (int64_t e = 0; e < experts; ++e) {
    if (e >= k && !(logits[e] > logits[best[k - 1]])) continue;
    int64_t at = std::min(e, k - 1);
    best[at] = static_cast<int32_t>(e);
    for (; at > 0 && logits[best[at]] > logits[best[at - 1]]; --at) std::swap(best[at], best[at - 1]);
  }
}

}  // namespace

template <class T>
void choose_top_k(const T* logits, int64_t stride, Routing& r) {
  if (!r.preset)
    for (int64_t t = 0; t < r.tokens; ++t)
      choose(logits + t * stride, r.experts, r.expert.data() + t * r.choices, r.choices);
  assign_rows(r);
}

template void choose_top_k(const float*, int64_t, Routing&);
template void choose_top_k(const double*, int64_t, Routing&);

template <class T>
void weigh_chosen(const T* logits, int64_t stride, Routing& routing) {
  const int64_t k = routing.choices;
  const int32_t* expert = routing.expert.data();
  T* weight = routing.weight.as<T>();
  for (int64_t t = 0; t < routing.tokens; ++t, logits += stride, expert += k, weight += k) {
    for (int64_t c = 0; c < k; ++c) weight[c] = logits[expert[c]];
    const T most = *std::max_element(weight, weight + k);
    T sum = 0;
    for (int64_t c = 0; c < k; ++c) sum += weight[c] = std::exp(weight[c] - most);
    for (int64_t c = 0; c < k; ++c) weight[c] /= sum;
  }
}

template <class T>
void weigh_chosen_backward(const Routing& routing, const T* dw, T* d, int64_t stride) {
  const int64_t k = routing.choices;
  const T* weight = routing.weight.as<T>();
  const int32_t* expert = routing.expert.data();
  for (int64_t t = 0; t < routing.tokens; ++t, d += stride) {
    std::fill_n(d, routing.experts, T(0));
    T mean = 0;
    for (int64_t c = 0; c < k; ++c) mean += weight[c] * dw[c];
    for (int64_t c = 0; c < k; ++c) d[expert[c]] = weight[c] * (dw[c] - mean);
    weight += k;
    dw += k;
    expert += k;
  }
}

template void weigh_chosen(const float*, int64_t, Routing&);
template void weigh_chosen(const double*, int64_t, Routing&);
template void weigh_chosen_backward(const Routing&, const float*, float*, int64_t);
template void weigh_chosen_backward(const Routing&, const double*, double*, int64_t);

}  // namespace moe
