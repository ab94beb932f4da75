#pragma once
// Compares the results of a layer on all its ranks with the autograd reference.
#include <span>
#include <string>
#include <vector>

#include "moe/layer/moe_layer.h"
#include "moe/layer/reference/reference.h"

namespace moe {

/// The largest absolute difference between a tensor and its reference over all ranks' parts, divided by the tensor's
/// scale. The scale is the largest absolute value of the reference. A gradient whose terms cancel has a larger scale,
/// at which 32 roundings of the terms' size (LayerReference::sizes) equal the tolerance of its type. A scale of 0
/// counts as 1.
struct TensorError {
  std::string tensor;
  double error = 0;
};

/// Returns the tolerance of a type: 1e-10 for float64, 2e-5 for float32, 16 roundings for float16 and bfloat16.
double tolerance_of(DType dtype);
/// Returns the tolerance of the layer's type plus two estimates, which are far below the error of a wrong layer. A hook
/// adds 32 times its error: it rounds in two exchanges forward and two backward, and differences of nearly equal
/// numbers (as in a softmax's gradient) amplify roundings. FP8 experts in a type other than float64 add kFp8Flips,
/// because layer and reference may round a number halfway between two FP8 numbers differently. In a stack, experts'
/// scores that differ by at most this tolerance count as a tie (LayerChoices::tie).
double tolerance_of(const MoeLayer& layer);
/// Returns the tolerance of a layer with the hook that its shape names.
double tolerance_of(const LayerShape& layer);

/// Returns the experts that each rank's gate chose for the rank's tokens in the last pass, (tokens of all ranks,
/// choices).
std::vector<int32_t> choices_of(std::span<MoeLayer* const> ranks);

/// Returns the errors of all tensors. `ranks` has the layers of one, some or all ranks, each after at least two passes
/// and MoeLayer::finish_gradients(). Throws WrongResult naming the token whose experts differ from the reference's.
std::vector<TensorError> layer_errors(std::span<MoeLayer* const> ranks, const LayerReference& reference);

/// Compares the gradients of parameters, which lie in `memory`, with the whole gradients of the same names.
std::vector<TensorError> gradient_errors(std::span<const Parameter> parameters, MemorySpace& memory,
                                         const std::map<std::string, std::vector<double>>& gradients,
                                         const TermSizesByTensor& sizes);

/// Throws WrongResult naming every tensor whose error is above `tolerance`, NaN included.
void require_small(std::span<const TensorError> errors, double tolerance, const LayerShape& layer);

/// Returns the errors of all tensors. Throws WrongResult naming every tensor whose error is NaN or above `tolerance`
/// (0: tolerance_of() the layer). Computes the reference, in float64 on one rank with all activations, which takes much
/// time and memory for large layers. `ranks` has the layers of every rank, in rank order.
std::vector<TensorError> verify_layer(std::span<MoeLayer* const> ranks, double tolerance = 0);
/// Verifies in the same way against a given reference, which all degrees and schedules of one case can share.
std::vector<TensorError> verify_layer(std::span<MoeLayer* const> ranks, const LayerReference& reference,
                                      double tolerance = 0);

}  // namespace moe
