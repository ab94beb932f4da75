#pragma once
// The end behind the last layer: norm, output projection, cross-entropy with what each token is to predict. Where
// layers end in a norm of their own, it has none.
//
// An MP rank projects on the tokens of the vocabulary that are its own. Of each token's logits it tells the others the
// largest, the sum of exponentials over it, and the target's; so all know the softmax, and none has all of it.
#include <span>

#include "moe/model/end_setup.h"

namespace moe::model {

class OutputHead {
 public:
  /// Makes the end, which `setup` must outlive. `embedding`: of a model that ties its projection to that on this rank;
  /// null: the projection is its own, or a copy. The gradient is of the sum of losses over `counted`.
  OutputHead(const EndSetup& setup, const Parameter* embedding, double counted);

  /// Clears the gradients, at the beginning of a step.
  void clear();
  /// Takes what the MP group's tokens are to predict; a negative target is none. Blocking.
  void load(int micro_batch, std::span<const int32_t> targets);
  /// Enqueues the AllGather of the last layer's output, where an MP rank has that of its own tokens alone.
  void gather(int micro_batch, CommCall call);
  /// Computes the logits of the MP group's tokens, and what this rank tells the others.
  void forward(int micro_batch);
  /// Enqueues the AllGather over MP of what its ranks tell each other.
  void share_sums(int micro_batch, CommCall call);
  /// Makes the gradients: of the weights, and this rank's part of the output's.
  void backward(int micro_batch);
  /// Enqueues, where there is MP, the sum of those parts.
  void sum(int micro_batch, CommCall call);

  /// Returns -log p(target) of each of some tokens of the MP group. Blocking.
  std::vector<double> losses(int micro_batch, Rows tokens) const;
  /// Computes the last pass's logits anew: (tokens of the MP group, own part of the vocabulary).
  Tensor logits(int micro_batch) const;

  bool shares_embedding() const { return projection_rows_.view().data() == nullptr; }
  const Parameter& projection() const { return projection_; }
  /// Shows the weights: of the projection, unless it is the embedding, and of the norm.
  std::vector<Parameter> parameters() const;
  TensorView norm_gradients() const { return norm_gradients_; }

 private:
  struct MicroBatch {
    Tensor rows, d_rows;    // (tokens of the MP group, M), where the rank's own are apart: gathered; to be summed
    Tensor normed, logits;  // (tokens, M), (tokens, own part of the vocabulary); at last the logits' gradient
    Tensor sums;            // (MP, tokens, kSoftmaxSums), float64
    Array<int32_t> targets;
  };
  MicroBatch& of(int micro_batch) { return micro_batches_[micro_batch]; }
  const MicroBatch& of(int micro_batch) const { return micro_batches_[micro_batch]; }
  TensorView rows(int micro_batch) const;
  TensorView d_rows(int micro_batch) const;
  /// Shows what this rank tells the others.
  TensorView own_sums(const MicroBatch& m) const;
  Targets targets(const MicroBatch& m) const { return {m.targets.data(), projection_.axes[1].first}; }

  const EndSetup& setup_;
  double counted_;
  Tensor projection_rows_, norm_gradients_;
  Parameter projection_;  // its own, or the embedding's
  std::unique_ptr<RowNorm> norm_;
  bool norm_begun_ = false;  // its gradients hold a micro-batch's already
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace moe::model
