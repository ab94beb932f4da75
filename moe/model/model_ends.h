#pragma once
// A model's ends on one rank. Before the first layer: x = embedding of the token + embedding of its place (GPT-2,
// Radford et al. 2019), of the token alone where attention rotates by places. Behind the last one: norm, output
// projection, cross-entropy with the token that follows.
//
//   loss = sum over all tokens of all micro-batches of -log p(next token), over their number
//
// Each rank has both ends whole, and computes them for the tokens whose rows it holds. So no collective is needed but
// the sum of their gradients over the stage, once a step.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "moe/stack/layer_stack.h"

namespace moe {

/// These name the weights and their random streams.
inline constexpr std::string_view kEmbedding = "embedding", kPlaces = "places";  // (vocabulary, M), (L, M)
inline constexpr std::string_view kHeadWeight = "head";                          // (vocabulary, M)
inline constexpr std::string_view kNormGain3 = "norm3";                          // (M)

/// Fills the seq + 1 tokens of a sample of a step's global batch: samples of all DP groups and micro-batches.
using SampleTokens = std::function<void(int64_t sample, std::span<int32_t> tokens)>;

class ModelEnds {
 public:
  /// `stack` must outlive it. Throws Unsupported for 16-bit layers and for devices but the CPU.
  ModelEnds(LayerStack& stack, int64_t vocabulary, const LayerSeed& seed);

  int64_t vocabulary() const { return vocabulary_; }
  bool embeds() const { return embeds_; }
  bool heads() const { return heads_; }
  /// Takes the tokens of a step and clears the gradients. Throws BadInput naming a token outside the vocabulary.
  void load(const SampleTokens& tokens);

  void embed(int micro_batch);
  void embed_backward(int micro_batch);
  void head(int micro_batch);
  void head_backward(int micro_batch);

  /// Returns what this rank's own tokens add to the loss; those of all ranks of the last stage add up to it. The
  /// loss is the mean over the tokens from `place` of each sample on.
  double loss(int64_t place = 0) const;
  std::vector<Parameter> parameters();
  /// Returns what a micro-batch's held tokens are, and the token that follows each.
  std::span<const int32_t> inputs(int micro_batch) const { return of(micro_batch).inputs; }
  std::span<const int32_t> targets(int micro_batch) const { return of(micro_batch).targets; }
  /// Shows the weights of the embedding (`layer` kEmbeddingLayer) or of the output projection with its norm.
  std::vector<Parameter> parameters(int layer);
  /// Enqueues the sum of one end's gradients over the stage, all of them at once. All its ranks call it after a pass.
  void sum_gradients(int layer, CommCall call);

 private:
  struct MicroBatch {
    std::vector<int32_t> inputs, targets;  // of the held tokens
    Tensor normed, probabilities;          // (held, M), (held, vocabulary)
    std::vector<double> losses;            // of the held tokens
  };
  Parameter parameter(std::string_view name, TensorView value, TensorView gradient) const;
  MicroBatch& of(int micro_batch) { return micro_batches_[static_cast<size_t>(micro_batch)]; }
  const MicroBatch& of(int micro_batch) const { return micro_batches_[static_cast<size_t>(micro_batch)]; }
  MoeLayer& first(int micro_batch) const { return stack_.cell(0, micro_batch); }
  MoeLayer& last(int micro_batch) const { return stack_.cell(stack_.last_layer() - 1, micro_batch); }
  const RankShape& rank() const { return stack_.cell(stack_.first_layer(), 0).shape(); }
  template <class T>
  void add_losses(MicroBatch& m);

  LayerStack& stack_;
  int64_t vocabulary_, tokens_;  // tokens_: of a step
  bool embeds_, learns_places_, heads_;
  Tensor embedding_, places_, head_;
  Tensor embedding_gradients_, head_gradients_;  // of an end, one after the other
  TensorView d_embedding_, d_places_, d_head_;   // in those
  PartSetup setup_;
  std::unique_ptr<RowNorm> norm_;  // null: none
  bool norm_begun_ = false;        // its gradient holds a micro-batch's already
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace moe
