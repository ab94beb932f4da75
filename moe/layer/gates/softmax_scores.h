#pragma once
// The softmax over all logits of each token, and the auxiliary losses that are made of it:
//
//   balance   aux_loss E sum_e f_e P_e     f_e: share of the tokens whose first choice is e, a constant of the
//                                          gradient; P_e: mean probability of e
//             (Switch Transformer, section 2.2; GShard's Algorithm 1 with E^2 in place of its mean's 1 / E)
//   z         z_loss mean of log(sum_e exp(logit_e))^2 (ST-MoE, section 3.2)
//
// Shares and means are over all tokens of the stage, the dropped ones included.
#include "moe/rows/rank_shape.h"
#include "moe/rows/routing.h"

namespace moe {

template <class T>
class SoftmaxScores {
 public:
  explicit SoftmaxScores(const RankShape& rank);
  /// Either loss has a coefficient.
  bool losses() const { return balance_ > 0 || z_ > 0; }

  /// Of `logits`, rows `stride` apart.
  void forward(const T* logits, int64_t stride);
  const T* probabilities(int64_t token) const { return probabilities_.as<T>() + token * experts_; }
  /// Sets each pair's weight to its expert's probability; 0 for pairs without an expert.
  void weigh(Routing& routing) const;
  /// Statistics of this rank's own tokens.
  void count(const Routing& routing);

  /// Overwrites the logits' gradients, rows `stride` apart, by those of weigh().
  void backward(const Routing& routing, const T* d_weight, T* d_logits, int64_t stride) const;
  /// Adds those of the losses, times `share`. The statistics are summed over the stage.
  void add_losses(double share, T* d_logits, int64_t stride) const;

  /// float64: first choices of each expert, probabilities of each expert, squared log-sums; no data without losses.
  TensorView statistics() const { return statistics_; }
  /// Both losses, from the summed statistics.
  double loss() const;

 private:
  double* sums() const { return statistics_.view().as<double>(); }

  int64_t tokens_, experts_, group_tokens_;
  int own_group_;
  double balance_, z_;       // per pair of counts, per squared log-sum: already divided by the tokens of the stage
  Tensor probabilities_;     // (tokens, E)
  std::vector<T> log_sums_;  // of each token
  Tensor statistics_;        // (2 E + 1)
};

}  // namespace moe
