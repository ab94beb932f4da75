#pragma once
// Compares a model's ranks, after a step that changed no weight, with the autograd reference.
#include <span>
#include <vector>

#include "moe/layer/reference/stack_reference.h"
#include "moe/model/rank_model.h"
#include "moe/stack/stack_errors.h"

namespace moe {

/// Computes the reference of a step's tokens. `rank`: any; `choices` are followed where they are as good.
ModelReference reference_model(const RankCells& rank, const StackChoices& choices, const ModelEnds& ends,
                               const SampleTokens& tokens);

/// Compares the ends' gradients. Tensors are named as stack_errors names a layer's.
std::vector<TensorError> end_errors(ModelEnds& ends, const ModelReference& reference);

}  // namespace moe
