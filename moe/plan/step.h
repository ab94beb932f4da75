#pragma once
// The step of an iteration, after its backwards: sums of gradients, their norm, the optimizer's step and, with ZeRO 1,
// the gathers of the weights that it changed.
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
  /// Whether the step consists of tasks of Phase::step. Otherwise, as papers count, a plan has the sums that its
  /// schedule places and, at its end, one optimizer task per stage that takes no time.
  bool planned = false;
  bool clips = false;                                     // clips gradients by the norm of all of them
  std::optional<OptimizerKind> optimizer = std::nullopt;  // none: weights stay, the optimizer's tasks do nothing
  bool tied = false;  // the output projection is the embedding; each end stage has a copy, if there are several stages
  bool operator==(const StepShape&) const = default;
};

/// The embedding's number: a model's ends count as the layers before the first one and after the last one.
inline constexpr int kEmbeddingLayer = -1;

/// Elements of a rank's weights, by the ranks that sum their gradients: those of DP, of EDP, or of the whole
/// stage.
struct StepWeights {
  int64_t dense = 0, experts = 0, alike = 0;

  StepWeights& operator+=(const StepWeights& other) {
    dense += other.dense, experts += other.experts, alike += other.alike;
    return *this;
  }
  bool operator==(const StepWeights&) const = default;
};
/// Weights of a model's ends on a rank, which a step sums, steps and gathers, even if the ends have no tasks.
struct EndWeights {
  StepWeights embedding, head;

  bool none() const { return *this == EndWeights{}; }
  bool operator==(const EndWeights&) const = default;
};
/// Returns the weights of a layer: `dense` has attention and the shared expert; `alike` the gate, the norms and the
/// projections to the latents of latent attention.
StepWeights step_weights(const LayerCase& shape);
/// Returns the largest share if `parts` ranks divide `total` among them.
constexpr int64_t shared_out(int64_t total, int parts) { return (total + parts - 1) / parts; }
/// These return the weights of the embedding (with learned positions if attention has no rotary ones) and of the output
/// projection. MP ranks share the rows of each: tokens of the vocabulary, positions. A norm, which all ranks replicate,
/// precedes the output projection or, if layers end in norms, follows the embedding.
StepWeights embedding_weights(const LayerCase& shape, int64_t vocabulary);
/// `tied`: on one stage, the weights count only with the embedding.
StepWeights head_weights(const LayerCase& shape, int64_t vocabulary, bool tied = false);

/// Returns the weights of both ends; none without a vocabulary.
EndWeights end_weights(const LayerCase& shape, int64_t vocabulary, bool tied);

/// Returns the bytes of a layer's replicated weights that the stage sums, in the type of sums.
int64_t stage_gradient_bytes(const LayerCase& shape);
/// These return, in the layer's own type, the bytes of an end that are summed over DP, and those of its norm, which are
/// summed over the stage.
int64_t end_gradient_bytes(const LayerCase& shape, const StepWeights& end);
int64_t end_norm_bytes(const LayerCase& shape, const StepWeights& end);
/// Numbers, of 8 bytes each, that an MP rank sends to the others for a token's logits: their maximum, the sum of their
/// exponentials relative to it, and the target's logit.
inline constexpr int kSoftmaxSums = 3;

/// Returns the bytes that the optimizer copies on a rank, where a copied byte is read and written once: half of the
/// bytes that it reads and writes. AdamW reads gradient, weight and two moments and writes all except the gradient; SGD
/// has one momentum. 16-bit weights have float32 masters. With ZeRO 1, a rank steps only its share.
double optimizer_bytes(const LayerCase& shape, const StepWeights& weights, OptimizerKind optimizer);

}  // namespace moe
