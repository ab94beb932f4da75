#pragma once
// A model's ends on one rank. Before the first layer: x = embedding of the token + embedding of its place (GPT-2,
// Radford et al. 2019), of the token alone where attention rotates by places. Behind the last one: norm, output
// projection, cross-entropy with the token that follows or, where attention is not causal, of the tokens that were
// masked (moe/train/masked_tokens.h). Where layers end in a norm of their own, x has the norm, and the output none.
//
//   loss = sum over all targets of all micro-batches of -log p(target), over their number
//
// Each rank has both ends whole, and computes them for the tokens whose rows it holds. So no collective is needed but
// the sum of their gradients over the stage, once a step.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "moe/stack/layer_stack.h"

namespace moe {

/// Names of the weights and of their random streams.
inline constexpr std::string_view kEmbedding = "embedding", kPlaces = "places";  // (vocabulary, M), (L, M)
inline constexpr std::string_view kHeadWeight = "head";                          // (vocabulary, M)
inline constexpr std::string_view kNormGain0 = "norm0", kNormGain3 = "norm3";    // (M)

/// Fills the seq tokens of a sample of a step's global batch, and what is to be predicted at each, kNoTarget for
/// nothing: samples of all DP groups and micro-batches.
using SampleTokens = std::function<void(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets)>;

class ModelEnds {
 public:
  /// Makes the ends that this rank's stage has. `stack` must outlive them. `tied`: the output projection is the
  /// embedding; each end stage has a copy of it. Throws Unsupported for 16-bit layers and for devices but the CPU.
  ModelEnds(LayerStack& stack, int64_t vocabulary, bool tied, const LayerSeed& seed);

  int64_t vocabulary() const { return vocabulary_; }
  bool embeds() const { return embeds_; }
  bool heads() const { return heads_; }
  bool tied() const { return tied_; }
  /// Returns this stage's part of a tied embedding's gradient, which is to be summed with the other end's stage's;
  /// nothing where one stage has both ends, or this one none, or it is not tied.
  std::optional<TensorView> tied_gradient() const;
  /// Takes the tokens of a step and clears the gradients. Throws BadInput naming a token outside the vocabulary.
  void load(const SampleTokens& tokens);

  void embed(int micro_batch);
  void embed_backward(int micro_batch);
  void head(int micro_batch);
  void head_backward(int micro_batch);

  /// Returns what this rank's own tokens add to the loss; those of all ranks of the last stage add up to it. The
  /// loss is the mean over the targets, of causal models over those from `place` of each sample on.
  double loss(int64_t place = 0) const;
  std::vector<Parameter> parameters();
  /// Computes the last pass's logits anew: (held, vocabulary).
  Tensor logits(int micro_batch) const;
  /// These return a micro-batch's held tokens, and what is to be predicted at each.
  std::span<const int32_t> inputs(int micro_batch) const { return of(micro_batch).inputs; }
  std::span<const int32_t> targets(int micro_batch) const { return of(micro_batch).targets; }
  /// Shows the weights of the embedding (`layer` kEmbeddingLayer) or of the output projection with its norm.
  std::vector<Parameter> parameters(int layer);
  /// Enqueues the sum of one end's gradients over the stage, all of them at once. All its ranks call it after a pass.
  void sum_gradients(int layer, CommCall call);

 private:
  struct MicroBatch {
    std::vector<int32_t> inputs, targets;  // of the held tokens
    Tensor embedded;                       // (held, M): what the norm behind the embedding reads; none without one
    Tensor normed, probabilities;          // (held, M), (held, vocabulary)
    std::vector<double> losses;            // of the held tokens
  };
  Parameter parameter(std::string_view name, TensorView value, TensorView gradient) const;
  void make_embedding();
  void make_head();
  std::unique_ptr<RowNorm> end_norm(std::string_view gain, TensorView gradients) const;
  int copies() const { return static_cast<int>(rank().held.count / rank().tokens.count); }
  MicroBatch& of(int micro_batch) { return micro_batches_[static_cast<size_t>(micro_batch)]; }
  const MicroBatch& of(int micro_batch) const { return micro_batches_[static_cast<size_t>(micro_batch)]; }
  MoeLayer& first(int micro_batch) const { return stack_.cell(0, micro_batch); }
  MoeLayer& last(int micro_batch) const { return stack_.cell(stack_.last_layer() - 1, micro_batch); }
  const RankShape& rank() const { return stack_.cell(stack_.first_layer(), 0).shape(); }
  template <class T>
  void add_losses(MicroBatch& m);

  LayerStack& stack_;
  int64_t vocabulary_, counted_;  // counted_: targets of a step
  bool embeds_, learns_places_, heads_, tied_;
  Tensor embedding_, places_, own_head_;
  TensorView head_;                              // own_head_, or the embedding where that is this stage's too
  Tensor embedding_gradients_, head_gradients_;  // of an end, one after the other
  TensorView d_embedding_, d_places_, d_head_;   // in those
  PartSetup setup_;
  std::unique_ptr<RowNorm> first_norm_, norm_;     // behind the embedding; before the output projection; null: none
  Tensor d_embedded_;                              // (held, M), of one micro-batch
  bool first_begun_ = false, norm_begun_ = false;  // their gradients hold a micro-batch's already
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace moe
