#pragma once
// The head, after the last layer: norm (not in post-norm models), output projection, and cross-entropy with each
// token's target.
//
// An MP rank computes the logits of its own part of the vocabulary. For each token it sends the other MP ranks three
// numbers: its largest logit, the sum of exponentials relative to it, and the target's logit if it has it. From these
// numbers of all ranks each rank computes the softmax of its part.
#include <span>

#include "moe/model/end_setup.h"

namespace moe::model {

class OutputHead {
 public:
  /// `setup` must outlive the head. `embedding` is this rank's embedding if the projection is tied to it; null if the
  /// projection is a separate weight, or a copy of another stage's embedding. The gradient is that of the sum of losses
  /// divided by `counted`.
  OutputHead(const EndSetup& setup, const Parameter* embedding, double counted);

  /// Clears the gradients, at the beginning of a step.
  void clear();
  /// Takes the targets of the MP group's tokens; a negative number means that the token has no target. Blocking.
  void load(int micro_batch, std::span<const int32_t> targets);
  /// Enqueues the AllGather of the last layer's output, if an MP rank has it for its own tokens only.
  void gather(int micro_batch, CommCall call);
  /// Computes the logits of the MP group's tokens, and the sums that this rank sends the others.
  void forward(int micro_batch);
  /// Enqueues the AllGather over MP of the sums that forward() computed.
  void exchange_softmax_sums(int micro_batch, CommCall call);
  /// Makes the gradients of the weights, and this rank's part of the output's gradient.
  void backward(int micro_batch);
  /// Enqueues, if MP > 1, the sum over MP of the parts of the output's gradient.
  void sum(int micro_batch, CommCall call);

  /// Returns -log p(target) of each of some tokens of the MP group. Blocking.
  std::vector<double> losses(int micro_batch, Rows tokens) const;
  /// Computes the last pass's logits again: (tokens of the MP group, own part of the vocabulary).
  Tensor logits(int micro_batch) const;

  bool shares_embedding() const { return projection_rows_.view().data() == nullptr; }
  const Parameter& projection() const { return projection_; }
  /// Returns the weights: the projection's, unless it is the embedding, and the norm's.
  std::vector<Parameter> parameters() const;
  TensorView norm_gradients() const { return norm_gradients_; }

 private:
  struct MicroBatch {
    Tensor rows,
        d_rows;  // (tokens of the MP group, M): gathered rows, and parts of gradients; only if shards_rows_over_mp()
    Tensor normed, logits;  // (tokens, M), (tokens, own part of the vocabulary): logits, later their gradients
    Tensor sums;            // (MP, tokens, kSoftmaxSums), float64
    Array<int32_t> targets;
  };
  MicroBatch& state_of(int micro_batch) { return micro_batches_[micro_batch]; }
  const MicroBatch& state_of(int micro_batch) const { return micro_batches_[micro_batch]; }
  TensorView rows(int micro_batch) const;
  TensorView d_rows(int micro_batch) const;
  /// Returns the sums that this rank sends the others.
  TensorView own_sums(const MicroBatch& m) const;
  Targets targets(const MicroBatch& m) const { return {m.targets.data(), projection_.axes[1].first}; }

  const EndSetup& setup_;
  double counted_;
  Tensor projection_rows_, norm_gradients_;
  Parameter projection_;  // a separate one, or the embedding
  std::unique_ptr<RowNorm> norm_;
  bool norm_begun_ = false;  // whether the norm's gradients already include a micro-batch of this step
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace moe::model
