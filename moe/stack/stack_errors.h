#pragma once
// Proof before time: all ranks of a stack, after they ran, against the autograd reference.
#include "moe/layer/reference/stack_reference.h"
#include "moe/layer/verify.h"
#include "moe/stack/layer_stack.h"

namespace moe {

/// What the ranks' gates chose in the last pass, by layer and micro-batch, where these ranks hold the layer.
/// `ranks`: every rank of a stack that is here, in rank order.
std::vector<std::vector<std::vector<int32_t>>> choices_of(std::span<LayerStack* const> ranks);

/// `ranks`: after a pass and finish_gradients. Compares every layer of every micro-batch: its output, its input's
/// gradient, and its weights' gradients over all micro-batches. Tensors are named with their layer. Throws WrongResult
/// naming the token whose experts differ from the reference's.
std::vector<TensorError> stack_errors(std::span<LayerStack* const> ranks, const StackReference& reference);

}  // namespace moe
