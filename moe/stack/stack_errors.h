#pragma once
// Compares the results of a stack or a layer on all its ranks with the autograd reference.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/reference/stack_reference.h"
#include "moe/layer/verify.h"
#include "moe/stack/layer_stack.h"

namespace moe {

/// Chosen experts, (tokens of all ranks of a stage, choices), by layer and micro-batch.
using StackChoices = std::vector<std::vector<std::vector<int32_t>>>;

/// Returns the choices of this rank's gates for its own tokens in the last pass: layer after layer, and within a layer
/// micro-batch after micro-batch.
std::vector<int32_t> own_choices(const RankCells& rank);
/// Joins the choices of every rank of a stack, in rank order; dense layers have none.
StackChoices join_choices(const std::vector<std::vector<int32_t>>& ranks, const StackShape& shape);
/// Returns the largest tolerance of the stack's layers. It applies to all gradients, because they pass through all
/// layers, and is the same on every rank.
double tolerance_of(const RankCells& rank);
/// Returns a function that gives, for a layer and micro-batch, the choices that a reference follows if they are as good
/// as its own (LayerChoices). The function must not outlive `choices`. `rank` can be any rank of the stack.
std::function<LayerChoices(int layer, int micro_batch)> choices_to_follow(const RankCells& rank,
                                                                          const StackChoices& choices);
/// Computes the reference, which follows `choices` as choices_to_follow() describes. `rank` can be any rank of the
/// stack.
StackReference reference_stack(const RankCells& rank, const StackChoices& choices);

/// Returns the errors of all tensors. `ranks` has some or all ranks, each after its passes and finish_gradients().
/// Compares the output and the input gradient of every layer for every micro-batch, and the weights' gradients summed
/// over all micro-batches. Names of a stack's tensors include the layer. Throws WrongResult naming the token whose
/// experts differ from the reference's.
std::vector<TensorError> stack_errors(std::span<const RankCells> ranks, const StackReference& reference);

/// Returns the result of stack_errors(). Throws WrongResult naming the tensors whose error exceeds tolerance_of().
std::vector<TensorError> verify_stack(std::span<const RankCells> ranks, const StackReference& reference);

}  // namespace moe
