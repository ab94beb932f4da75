#include "moe/layer/gates/softmax_scores.h"

#include <algorithm>
#include <cmath>

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
    logits += stride, p += experts_;
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
    if (losses_.balances()) ++first[routing.expert[static_cast<size_t>(t * routing.choices)]];
    for (int64_t e = 0; e < experts_; ++e) probability[e] += static_cast<double>(probabilities(t)[e]);
    const auto log_sum = static_cast<double>(log_sums_[static_cast<size_t>(t)]);
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
    expert += routing.choices, dw += routing.choices;
  }
}

template <class T>
void SoftmaxScores<T>::add_losses(double share, T* d, int64_t stride) const {
  if (!losses()) return;
  std::vector<T> slope(static_cast<size_t>(experts_));  // of the balance loss in each probability
  for (size_t e = 0; e < slope.size(); ++e) slope[e] = static_cast<T>(losses_.balance_slope(share) * sums()[e]);
  for (int64_t t = 0; t < tokens_; ++t, d += stride) {
    const T* p = probabilities(t);
    T mean = 0;
    for (size_t e = 0; e < slope.size(); ++e) mean += p[e] * slope[e];
    const T z = static_cast<T>(losses_.z_slope(share)) * log_sums_[static_cast<size_t>(t)];
    for (size_t e = 0; e < slope.size(); ++e) d[e] += p[e] * (slope[e] - mean + z);
  }
}

template class SoftmaxScores<float>;
template class SoftmaxScores<double>;

}  // namespace moe
