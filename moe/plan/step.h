#pragma once
// The step phase of an iteration, after its backwards: sums of gradients, their norm, the optimizer and, with ZeRO 1,
// the gathers of the updated weights.
#include <cstdint>
#include <optional>
#include <string_view>

#include "moe/shape/shape.h"

namespace moe {

enum class OptimizerKind : uint8_t { sgd, adamw };
std::string_view name_of(OptimizerKind kind);
/// Returns the optimizer of that name. Throws BadInput that lists the known names; `where` names the flag or file line.
OptimizerKind optimizer_from(std::string_view name, std::string_view where);

struct StepShape {
  /// True: the plan has tasks of Phase::step. False, as papers count: the plan has only the sums that its schedule
  /// places and, at its end, one optimizer task per stage that takes no time.
  bool planned = false;
  bool clips = false;                                     // gradients are clipped by their global norm
  std::optional<OptimizerKind> optimizer = std::nullopt;  // empty: optimizer tasks do nothing
  bool tied = false;  // the output projection is the embedding; with several stages, first and last have a copy each
  bool operator==(const StepShape&) const = default;
};

/// The layer number of the embedding. The head has the number after the last layer.
inline constexpr int kEmbeddingLayer = -1;

/// Numbers of elements of a rank's weights, by the group that sums their gradients: dense over DP, experts over EDP,
/// alike over the whole stage.
struct StepWeights {
  int64_t dense = 0, experts = 0, replicated = 0;

  StepWeights& operator+=(const StepWeights& other) {
    dense += other.dense, experts += other.experts, replicated += other.replicated;
    return *this;
  }
  bool operator==(const StepWeights&) const = default;
};
/// Weights of a model's ends on a rank. The step sums their gradients, updates and gathers them, even if the plan has
/// no tasks for the ends.
struct EndWeights {
  StepWeights embedding, head;

  bool none() const { return *this == EndWeights{}; }
  bool operator==(const EndWeights&) const = default;
};
/// Returns the weights of a layer. `dense`: attention and the shared expert; `alike`: the gate, the norms and latent
/// attention's projections to the latents.
StepWeights step_weights(const LayerCase& shape);
/// Returns the largest share if `parts` ranks divide `total` elements.
constexpr int64_t padded_share(int64_t total, int parts) { return (total + parts - 1) / parts; }
/// These return the weights of the embedding (with learned positions if attention has no rotary ones) and of the output
/// projection. Both are sharded over MP by row: a token of the vocabulary, or a position. A norm that all ranks
/// replicate precedes the output projection or, if layers end in norms, follows the embedding.
StepWeights embedding_weights(const LayerCase& shape, int64_t vocabulary);
/// `tied`: with a single stage, the projection's weights are counted only with the embedding.
StepWeights head_weights(const LayerCase& shape, int64_t vocabulary, bool tied = false);

/// Returns the weights of both ends; all 0 if `vocabulary` is 0.
EndWeights end_weights(const LayerCase& shape, int64_t vocabulary, bool tied);

/// Returns the gradient bytes of a layer's replicated weights, which the stage sums, in the type of sums
/// (accumulation_type).
int64_t stage_gradient_bytes(const LayerCase& shape);
/// These return the gradient bytes, in the layer's own type, of an end's weights, summed over DP, and of its norm,
/// summed over the stage.
int64_t end_gradient_bytes(const LayerCase& shape, const StepWeights& end);
int64_t end_norm_bytes(const LayerCase& shape, const StepWeights& end);
/// Count of numbers, 8 bytes each, that an MP rank sends to the others for each token: the maximum of its logits, the
/// sum of their exponentials relative to it, and the target's logit.
inline constexpr int kSoftmaxSums = 3;

/// Returns the optimizer's memory traffic on a rank in copied bytes, that is, half of the bytes that it reads and
/// writes. AdamW reads gradient, weight and two moments and writes all except the gradient; SGD has one momentum.
/// 16-bit weights have float32 masters. With ZeRO 1, a rank updates only its share.
double optimizer_bytes(const LayerCase& shape, const StepWeights& weights, OptimizerKind optimizer);

}  // namespace moe
