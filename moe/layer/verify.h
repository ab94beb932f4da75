#pragma once
// Compares all ranks of a layer, after they ran, with the autograd reference: correctness before speed.
#include <span>
#include <string>
#include <vector>

#include "moe/layer/moe_layer.h"
#include "moe/layer/reference/reference.h"

namespace moe {

/// The largest absolute difference over all ranks' parts, divided by the scale of the tensor: the largest absolute
/// value of the reference. A gradient whose terms cancel has a larger scale, at which 32 roundings of the terms' size
/// (LayerReference::sizes) equal the tolerance of its type. 1 if both are zero.
struct TensorError {
  std::string tensor;
  double error = 0;
};

/// Returns 1e-10 for float64, 2e-5 for float32, 16 roundings for float16 and bfloat16.
double tolerance_of(DType dtype);
/// Returns the same plus, with a hook, 32 times the hook's error: it rounds in two exchanges forward and two back, and
/// differences of nearly equal numbers (a softmax's gradient) amplify that. This is no bound, but far below the error
/// of a wrong layer. The same holds for the extra tolerance of FP8 experts below float64: a number in the middle
/// between two FP8 numbers is rounded to one here and to the other there. Two experts' scores that are a tie in a layer
/// behind others like it may be as far apart (LayerChoices::tie).
double tolerance_of(const MoeLayer& layer);
/// Returns the tolerance of a layer with the hook that its shape names.
double tolerance_of(const LayerShape& layer);

/// Returns the experts that the gates chose for their own tokens in the last pass, (tokens of all ranks, choices).
std::vector<int32_t> choices_of(std::span<MoeLayer* const> ranks);

/// Returns the errors. `ranks`: layers of one, some or all ranks, each after at least two passes and
/// MoeLayer::finish_gradients. Throws WrongResult naming the token whose experts differ from the reference's.
std::vector<TensorError> layer_errors(std::span<MoeLayer* const> ranks, const LayerReference& reference);

/// Compares the gradients of weights, which lie in `memory`, with full ones, by name.
std::vector<TensorError> gradient_errors(std::span<const Parameter> parameters, MemorySpace& memory,
                                         const std::map<std::string, std::vector<double>>& gradients,
                                         const TermSizesOf& sizes);

/// Throws WrongResult naming every tensor whose error is above `tolerance`, NaN included.
void require_small(std::span<const TensorError> errors, double tolerance, const LayerShape& layer);

/// Returns the errors; throws WrongResult naming every tensor whose error is above `tolerance` (0: tolerance_of its
/// type plus the effect of its hook's four exchanges), NaN included. Computes the reference, in float64 on one rank
/// with all activations: slow, and large for large layers. `ranks`: layers of every rank, in rank order.
std::vector<TensorError> verify_layer(std::span<MoeLayer* const> ranks, double tolerance = 0);
/// Verifies in the same way against a given reference, which degrees and schedules of one case share.
std::vector<TensorError> verify_layer(std::span<MoeLayer* const> ranks, const LayerReference& reference,
                                      double tolerance = 0);

}  // namespace moe
