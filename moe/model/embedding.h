#pragma once
// The embedding, before the first layer: x = embedding of the token + embedding of its position (GPT-2, Radford et al.
// 2019), or only the token's if attention uses rotary positions. In post-norm models x is normed too.
//
// Each MP rank has a part of the rows of both tables and looks up only those rows; x is the sum of all parts over MP.
#include <optional>
#include <span>

#include "moe/model/end_setup.h"
#include "moe/model/table_tokens.h"

namespace moe::model {

class Embedding {
 public:
  /// `setup` must outlive the embedding.
  explicit Embedding(const EndSetup& setup);

  /// Clears the gradients, at the beginning of a step.
  void clear();
  /// Takes the tokens of the MP group. Blocking.
  void load(int micro_batch, std::span<const int32_t> tokens);
  /// Looks the tokens up.
  void forward(int micro_batch);
  /// Enqueues, if MP > 1, the sum of the MP ranks' rows: the first layer's input.
  void sum(int micro_batch, CommCall call);
  /// Enqueues the AllGather of the gradient of the first layer's input, if an MP rank has only its own tokens' part.
  void gather(int micro_batch, CommCall call);
  /// Adds the gradients of a micro-batch.
  void backward(int micro_batch);

  const Parameter& words() const { return words_; }
  /// Returns the weights: the token embedding, the position embedding and the norm's.
  std::vector<Parameter> parameters() const;
  TensorView norm_gradients() const { return norm_gradients_; }
  int norm_copies() const { return setup_.copies(); }

 private:
  struct MicroBatch {
    Tensor
        rows;  // (tokens of the MP group, M): looked-up rows, later their gradients; empty unless shards_rows_over_mp()
    Tensor summed;  // (held, M): input of the norm
    TableTokens words;
  };
  MicroBatch& state_of(int micro_batch) { return micro_batches_[micro_batch]; }
  const MicroBatch& state_of(int micro_batch) const { return micro_batches_[micro_batch]; }
  // Returns the positions of a micro-batch's tokens; null if attention uses rotary positions.
  const TableTokens* places_of(int micro_batch) const {
    return places_of_.empty() ? nullptr : &places_of_[micro_batch % places_of_.size()];
  }
  TensorView looked_up(int micro_batch) const;
  TensorView summed(int micro_batch) const;
  void normalise(int micro_batch);
  TensorView through_norm(int micro_batch);

  const EndSetup& setup_;
  Tensor word_rows_, place_rows_, norm_gradients_;
  Parameter words_, places_;            // places_ has no rows if attention uses rotary positions
  std::vector<TableTokens> places_of_;  // places by part of the samples
  std::unique_ptr<RowNorm> norm_;
  Tensor d_summed_;          // (held, M), of one micro-batch
  bool norm_begun_ = false;  // whether the norm's gradients already include a micro-batch of this step
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace moe::model
