#pragma once
// The setup that embedding and head of a model share on one rank. The ranks of an MP group divide the vocabulary, which
// is the rows of both weights; each rank computes its part for the tokens of the whole group.
#include <memory>
#include <string_view>

#include "moe/stack/layer_stack.h"

namespace moe::model {

/// Names of the weights and of their random streams.
inline constexpr std::string_view kEmbedding = "embedding", kPositionEmbedding = "places";  // (vocabulary, M), (L, M)
inline constexpr std::string_view kHeadWeight = "head";                                     // (vocabulary, M)
inline constexpr std::string_view kNormGain0 = "norm0", kNormGain3 = "norm3";               // (M)

/// Throws BadInput for float16, because gradients of a model underflow in its range.
void require_trains(DType dtype);

class EndSetup {
 public:
  /// Throws as require_trains() does, and BadInput for a vocabulary that is too small to divide.
  EndSetup(LayerStack& stack, int64_t vocabulary, bool tied, const LayerSeed& seed);

  LayerStack& stack() const { return stack_; }
  /// Returns the math of the stack's layers.
  Math& math() const { return part_.math; }
  int64_t vocabulary() const { return vocabulary_; }
  bool tied() const { return tied_; }
  const RankShape& rank() const { return part_.rank; }
  const LayerShape& layer() const { return rank().shape.layer; }
  int64_t tokens() const { return rank().mp_tokens(); }  // tokens of a micro-batch for which an end computes
  /// Returns whether the rank has only the rows of its own tokens, so that an end gathers rows over MP before it
  /// computes and scatters the results afterwards.
  bool shards_rows_over_mp() const { return mp() > 1 && rank().traits().holds == Tokens::own; }
  int mp() const { return rank().shape.parallel.mp; }
  Communicator& mp_comm() const { return stack_.comms().communicator(GroupKind::mp); }
  /// Enqueues the AllGather over MP of each rank's rows, `apart`, into `all`.
  void gather_rows(TensorView apart, TensorView all, CommCall call) const;
  /// Enqueues the sum over MP of each rank's `parts`. `sum` receives the rows that this rank has; it is `parts` itself
  /// if the rank has all rows.
  void add_parts(TensorView parts, TensorView sum, CommCall call) const;
  /// Returns this rank's part of a table's rows.
  ShardRange part_of(int64_t rows) const { return share_of(rows, mp(), rank().mp); }
  /// Makes a tensor in the memory of the stack's layers.
  Tensor tensor(std::initializer_list<int64_t> shape, DType dtype) const { return {shape, dtype, math().memory()}; }
  Tensor rows() const { return tensor({tokens(), rank().model_dim()}, rank().dtype()); }
  /// Enqueues zeroing of the gradients that exist on the default stream.
  void clear(std::initializer_list<TensorView> gradients) const;
  /// Returns the number of ranks of the MP group that have the same rows.
  int copies() const { return static_cast<int>(rank().held_tokens.count / rank().tokens.count); }

  MoeLayer& first(int micro_batch) const { return stack_.cell(0, micro_batch); }
  MoeLayer& last(int micro_batch) const { return stack_.cell(stack_.layers().back(), micro_batch); }
  int micro_batches() const { return stack_.shape().micro_batches; }
  int parts() const { return stack_.shape().split().parts; }
  /// Returns the case of the micro-batch's part of the samples.
  LayerCase part(int micro_batch) const { return part_case(rank().shape, micro_batch % parts()); }

  /// Returns this rank's part of a table of (rows, M), filled with initial values; its gradients are summed over DP.
  /// `from` is the offset of its gradients in those of the end, and `layer` the end's layer number.
  Parameter table(std::string_view name, const Tensor& value, int64_t rows, int layer, int64_t from) const;
  void fill(const Parameter& table, int64_t fan_in) const { fill_weight(table, fan_in, part_.seed, math().memory()); }
  /// Makes an end's norm, whose gradients are summed over the stage; null if `gradients` has no data (no norm).
  std::unique_ptr<RowNorm> norm(std::string_view gain, const Tensor& gradients) const;

 private:
  LayerStack& stack_;
  int64_t vocabulary_;
  bool tied_;
  PartSetup part_;
};

}  // namespace moe::model
