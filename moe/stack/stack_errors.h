#pragma once
// Compares all ranks of a stack or of a layer, after they ran, with the autograd reference: correctness before speed.
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
/// Returns the largest tolerance of the stack's layers, which applies to all gradients, since they flow through all
/// layers; equal on all ranks, whichever layers they hold.
double tolerance_of(const RankCells& rank);
/// Returns, by layer and micro-batch, the choices that a reference follows if they are as good as its own. It must not
/// outlive `choices`. `rank`: any.
std::function<LayerChoices(int layer, int micro_batch)> choices_to_follow(const RankCells& rank,
                                                                          const StackChoices& choices);
/// Computes the reference, which follows the choices if they are as good as its own. `rank`: any.
StackReference reference_stack(const RankCells& rank, const StackChoices& choices);

/// Returns the errors. `ranks`: some or all ranks, each after its passes and finish_gradients. Compares every layer of
/// every micro-batch: its output, its input's gradient, and its weights' gradients over all micro-batches. Tensors of a
/// stack are named with their layer. Throws WrongResult naming the token whose experts differ from the reference's.
std::vector<TensorError> stack_errors(std::span<const RankCells> ranks, const StackReference& reference);

/// Returns the errors; throws WrongResult naming the tensors whose error is above tolerance_of the stack.
std::vector<TensorError> verify_stack(std::span<const RankCells> ranks, const StackReference& reference);

}  // namespace moe
