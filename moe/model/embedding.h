#pragma once
// The end before the first layer: x = embedding of the token + embedding of its place (GPT-2, Radford et al. 2019), or
// only that of the token if attention rotates by places. If layers end with a norm of their own, x has that norm too.
//
// An MP rank looks up its own tokens of the vocabulary and its own places; x is the sum of all parts over MP.
#include <optional>
#include <span>

#include "moe/model/end_setup.h"
#include "moe/model/table_tokens.h"

namespace moe::model {

class Embedding {
 public:
  /// Makes the end, which `setup` must outlive.
  explicit Embedding(const EndSetup& setup);

  /// Clears the gradients, at the beginning of a step.
  void clear();
  /// Takes the tokens of the MP group. Blocking.
  void load(int micro_batch, std::span<const int32_t> tokens);
  /// Looks the tokens up.
  void forward(int micro_batch);
  /// Enqueues, if MP > 1, the sum of the MP ranks' rows: the first layer's input.
  void sum(int micro_batch, CommCall call);
  /// Enqueues the AllGather of that input's gradient, if an MP rank has it for its own tokens only.
  void gather(int micro_batch, CommCall call);
  /// Adds the gradients of a micro-batch.
  void backward(int micro_batch);

  const Parameter& words() const { return words_; }
  /// Returns the weights: of tokens, of places, of the norm.
  std::vector<Parameter> parameters() const;
  TensorView norm_gradients() const { return norm_gradients_; }
  int norm_copies() const { return setup_.copies(); }

 private:
  struct MicroBatch {
    Tensor rows;    // (tokens of the MP group, M), if the rank's own rows are apart: looked up, later gradients
    Tensor summed;  // (held, M): input of the norm
    TableTokens words;
  };
  MicroBatch& state_of(int micro_batch) { return micro_batches_[micro_batch]; }
  const MicroBatch& state_of(int micro_batch) const { return micro_batches_[micro_batch]; }
  // Returns the places of a micro-batch's tokens; null if attention rotates.
  const TableTokens* places_of(int micro_batch) const {
    return places_of_.empty() ? nullptr : &places_of_[micro_batch % places_of_.size()];
  }
  TensorView looked_up(int micro_batch) const;
  TensorView summed(int micro_batch) const;
  void normalise(int micro_batch);
  TensorView through_norm(int micro_batch);

  const EndSetup& setup_;
  Tensor word_rows_, place_rows_, norm_gradients_;
  Parameter words_, places_;            // places_: without rows if attention rotates
  std::vector<TableTokens> places_of_;  // places by part of the samples
  std::unique_ptr<RowNorm> norm_;
  Tensor d_summed_;          // (held, M), of one micro-batch
  bool norm_begun_ = false;  // whether its gradients hold a micro-batch's already
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace moe::model
