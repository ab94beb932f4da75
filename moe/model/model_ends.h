#pragma once
// A model's ends on one rank: the embedding (embedding.h) and the head (output_head.h), if its stage has them, and the
// tokens that they read.
//
//   loss = (sum over all targets of all micro-batches of -log p(target)) / (number of targets)
//
// A target is the next token or, if attention is not causal, the token that was masked (moe/train/token_source.h).
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "moe/model/embedding.h"
#include "moe/model/output_head.h"

namespace moe {

/// Fills the `seq` tokens of a sample of a step's global batch, and the target of each token, which is kNoTarget for a
/// token without one. Samples are numbered over all DP groups and micro-batches.
using SampleTokens = std::function<void(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets)>;

class ModelEnds {
 public:
  /// Makes the ends that this rank's stage has. `stack` must outlive them. `tied`: the output projection is the
  /// embedding, of which both end stages have a copy. Throws as EndSetup does.
  ModelEnds(LayerStack& stack, int64_t vocabulary, bool tied, const LayerSeed& seed);

  int64_t vocabulary() const { return setup_.vocabulary(); }
  MemorySpace& memory() const { return setup_.math().memory(); }
  bool heads() const { return head_.has_value(); }
  bool tied() const { return setup_.tied(); }
  /// Returns this stage's part of a tied embedding's gradient, which must be summed with the other end stage's part.
  /// Returns nothing if one stage has both ends, if this stage has none, or if the embedding is not tied.
  std::optional<TensorView> tied_gradient() const;
  /// Takes the tokens of a step and clears the gradients. Throws BadInput naming a token outside the vocabulary.
  void load(const SampleTokens& tokens);
  /// Enqueues a task of an end: a computation, or a collective over MP.
  void issue(const Task& task, CommCall call);
  /// Enqueues the sum over the stage of the gradients of one end's norm (`layer`). All its ranks call it after a pass.
  void sum_norm(int layer, CommCall call);

  /// Returns this rank's part of the loss, from its own tokens; the sum over all ranks of the last stage is the loss.
  /// The loss is the mean over the targets; in causal models only over targets at position `place` or later of samples.
  double loss(int64_t place = 0) const;
  /// Computes the last pass's logits again: (tokens of the MP group, the rank's part of the vocabulary).
  Tensor logits(int micro_batch) const { return head_->logits(micro_batch); }
  const ShardRange& logit_columns() const { return head_->projection().axes[1]; }
  /// Return the tokens of a micro-batch that the rank's MP group has, and their targets.
  std::span<const int32_t> inputs(int micro_batch) const { return texts_[micro_batch].inputs; }
  std::span<const int32_t> targets(int micro_batch) const { return texts_[micro_batch].targets; }
  /// Returns the weights of the embedding (`layer` kEmbeddingLayer) or of the output projection, each with its norm.
  std::vector<Parameter> parameters(int layer) const;
  std::vector<Parameter> parameters() const;

 private:
  struct Text {  // text of a micro-batch, for the MP group's tokens
    std::vector<int32_t> inputs, targets;
  };
  const RankShape& rank() const { return setup_.rank(); }
  void compute(TaskKind kind, Phase phase, int micro_batch);
  int64_t counted() const;
  void read_sample(const SampleTokens& text, int64_t sample, std::span<int32_t> tokens,
                   std::span<int32_t> targets) const;

  model::EndSetup setup_;
  std::vector<Text> texts_;
  std::optional<model::Embedding> embedding_;
  std::optional<model::OutputHead> head_;
};

}  // namespace moe
