#pragma once
// The softmax over all logits of each token, and the auxiliary losses that are made of it (auxiliary_losses.h).
#include "moe/layer/gates/auxiliary_losses.h"
#include "moe/rows/routing.h"

namespace moe {

template <class T>
class SoftmaxScores {
 public:
  explicit SoftmaxScores(const RankShape& rank);
  bool losses() const { return losses_.any(); }

  /// Computes the softmax of `logits`, rows `stride` apart.
  void forward(const T* logits, int64_t stride);
  const T* probabilities(int64_t token) const { return probabilities_.as<T>() + token * experts_; }
  /// Sets each pair's weight to its expert's probability; 0 for pairs without an expert.
  void weigh(Routing& routing) const;
  /// Sets the statistics to those of this rank's own tokens.
  void count(const Routing& routing);

  /// Overwrites the logits' gradients, rows `stride` apart, by those of weigh().
  void backward(const Routing& routing, const T* d_weight, T* d_logits, int64_t stride) const;
  /// Adds the logits' gradients of the losses, times `share`. The statistics are summed over the stage.
  void add_losses(double share, T* d_logits, int64_t stride) const;

  TensorView statistics() const { return statistics_; }
  /// Computes both losses from the summed statistics.
  double loss() const { return losses() ? losses_.value(sums()) : 0; }

 private:
  double* sums() const { return statistics_.view().as<double>(); }

  int64_t tokens_, experts_, group_tokens_;
  int own_group_;
  AuxiliaryLosses losses_;
  Tensor probabilities_;     // (tokens, E)
  std::vector<T> log_sums_;  // of each token
  Tensor statistics_;
};

}  // namespace moe
