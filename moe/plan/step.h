#pragma once
// What an iteration does behind its backwards: sums of gradients, their norm, the optimizer's step, and with
// ZeRO 1 the gathers of the weights that it changed.
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
  /// Whether all of this is tasks of Phase::step. Else a plan has the sums that its schedule places and, behind
  /// everything, an optimizer's task a stage that takes no time: what papers count.
  bool planned = false;
  bool clips = false;                                     // by the norm of all gradients
  std::optional<OptimizerKind> optimizer = std::nullopt;  // none: the weights stay, the optimizer's tasks do nothing
  bool tied = false;  // the output projection is the embedding; each end stage has a copy, if there are several stages
  bool operator==(const StepShape&) const = default;
};

/// The embedding's number: a model's ends count as layers, before the first one and behind the last one.
inline constexpr int kEmbeddingLayer = -1;

/// Counts elements of a rank's weights, by the ranks that add up their gradients: those of DP, of EDP, of the whole
/// stage.
struct StepWeights {
  int64_t dense = 0, experts = 0, alike = 0;

  StepWeights& operator+=(const StepWeights& other) {
    dense += other.dense, experts += other.experts, alike += other.alike;
    return *this;
  }
  bool operator==(const StepWeights&) const = default;
};
/// Weights of a model's ends on a rank, which a step sums, steps and gathers, whether or not the ends are tasks.
struct EndWeights {
  StepWeights embedding, head;

  bool none() const { return *this == EndWeights{}; }
  bool operator==(const EndWeights&) const = default;
};
/// Returns the weights of a layer: dense ones are attention and shared expert, alike ones the gate, the norms and
/// what makes the latents of latent attention.
StepWeights step_weights(const LayerCase& shape);
/// Counts what the part has that has most, where `parts` share out `total`.
constexpr int64_t shared_out(int64_t total, int parts) { return (total + parts - 1) / parts; }
/// These return the weights of the embedding (learned places too, where attention knows none) and of the output
/// projection. The MP ranks share out the rows of each: tokens of the vocabulary, places. A norm, which all ranks hold
/// alike, is before the output projection or, where layers end in theirs, behind the embedding.
StepWeights embedding_weights(const LayerCase& shape, int64_t vocabulary);
/// `tied`: on one stage the embedding counts the projection's weights.
StepWeights head_weights(const LayerCase& shape, int64_t vocabulary, bool tied = false);

/// Returns both; none without a vocabulary.
EndWeights end_weights(const LayerCase& shape, int64_t vocabulary, bool tied);

/// Returns the bytes of a layer's weights alike that the stage adds up, in the type of sums.
int64_t stage_gradient_bytes(const LayerCase& shape);
/// These return, in the layer's own type, the bytes of an end that DP adds up, and those of its norm, which the stage
/// does.
int64_t end_gradient_bytes(const LayerCase& shape, const StepWeights& end);
int64_t end_norm_bytes(const LayerCase& shape, const StepWeights& end);
/// Counts what an MP rank tells the others of a token's logits, each 8 bytes: their largest, the sum of their
/// exponentials over it, the target's.
inline constexpr int kSoftmaxSums = 3;

/// Returns the bytes that the optimizer copies on a rank, reading and writing each once: half of those that it reads
/// and writes. AdamW reads gradient, weight and two moments and writes all but the gradient; SGD has one momentum.
/// 16-bit weights have float32 masters. With ZeRO 1 a rank steps its share.
double optimizer_bytes(const LayerCase& shape, const StepWeights& weights, OptimizerKind optimizer);

}  // namespace moe
